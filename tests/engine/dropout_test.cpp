// Dropout through whole steps: its masks belong to samples, not to ranks, micro-batches or runs of
// forward.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "engine/engine_impl.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::dropout_test {
namespace {

constexpr int64_t kGlobalBatch = 4, kSeq = 12;
constexpr int kSteps = 3;

// Rows that depend on (step, index in the global batch) only, and so do their seeds.
class SeededRows final : public DataLoader {
 public:
  SeededRows(int64_t rows, const comm::DeviceMesh& mesh) : rows_(rows), mesh_(mesh) {}

  model::MicroBatch next() override {
    model::MicroBatch batch;
    batch.tokens = torch::empty({rows_, kSeq}, torch::kLong);
    const int64_t first = (drawn_++ * mesh_.world_size() + mesh_.rank()) * rows_;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t sample = first + row;
      batch.samples.push_back(sample);
      batch.sample_seeds.push_back(sample * 7919 + 1);
      for (int64_t t = 0; t < kSeq; ++t) batch.tokens[row][t] = (sample * 13 + t * 5) % 64;
    }
    batch.targets = batch.tokens.roll(-1, 1);
    return batch;
  }

 private:
  int64_t rows_;
  const comm::DeviceMesh& mesh_;
  int64_t drawn_ = 0;
};

struct Way {
  double p = 0.2;
  int ranks = 1;
  int64_t accumulation = 1;
  configs::RecomputeConfig recompute = {};
};

// Rank 0's losses and norms of GPT-2's first steps.
std::vector<double> run(const Way& way) {
  std::vector<double> seen;
  testing::run_ranks(way.ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const std::string directory = fmt::format("{}/tests/model/fixtures/gpt2", ZEROTH_SOURCE_DIR);
    model::ModelSpec spec = model::read_model_spec(directory);
    model::override_dropout(spec, way.p);
    configs::Config config;
    const int64_t rows = kGlobalBatch / (way.accumulation * way.ranks);
    config.batch = {kGlobalBatch, rows, way.accumulation};
    config.recompute = way.recompute;
    const auto engine =
        initialize(model::build_blocks(spec), config, mesh,
                   {.weights = std::make_shared<model::CheckpointSource>(directory, spec)});
    SeededRows loader(rows, *mesh);
    for (int step = 0; step < kSteps; ++step) {
      const StepStats stats = engine->train_batch(loader);
      if (mesh->rank() == 0) seen.insert(seen.end(), {stats.loss, stats.grad_norm});
    }
    SeededRows unseen(rows, *mesh);
    const double loss = engine->eval_batch(unseen, 1).loss;
    CHECK(loss == engine->eval_batch(*std::make_unique<SeededRows>(rows, *mesh), 1).loss);
  });
  return seen;
}

}  // namespace

TEST_CASE("dropout is bit-equal under recompute") {
  const std::vector<double> plain = run({});
  CHECK(run({.recompute = {.every_nth_block = 1}}) == plain);
  CHECK(run({.recompute = {.number_checkpoints = 2}}) == plain);
  CHECK(run({.p = 0}) != plain);
}

TEST_CASE("dropout does not depend on ranks and accumulation") {
  const std::vector<double> plain = run({});
  for (const Way& way :
       {Way{.accumulation = 2}, Way{.ranks = 2}, Way{.ranks = 2, .accumulation = 2}}) {
    const std::vector<double> other = run(way);
    REQUIRE(other.size() == plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CHECK(other[i] == doctest::Approx(plain[i]).epsilon(2e-5));
    }
  }
}

}  // namespace zeroth::engine::dropout_test
