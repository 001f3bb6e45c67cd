// Every optimizer, the groups of weight decay, a schedule that cycles betas, and both means.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/engine/saved_run.h"
#include "tests/equivalence/expect_row.h"

namespace zeroth::equivalence::optimizers_test {
namespace {

using configs::Precision;

Row of(Training training, int stage, int ranks, int64_t accumulation) {
  Row row = {.accumulation = accumulation, .ranks = ranks, .training = training};
  row.zero.stage = stage;
  return row;
}

// Trains steps [first, last) of a row from a saved run, if there is one, and saves it.
std::vector<double> train_part(const Row& row, int64_t first, int64_t last, engine::SavedRun* from,
                               engine::SavedRun& to) {
  std::vector<double> losses;
  testing::RankOptions options;
  options.grid = mesh_shape_of(row);
  testing::run_ranks(
      row.ranks * row.tensor,
      [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto engine = make_row_engine(row, mesh);
        if (from != nullptr) {
          engine::SavedRun::Source source(*from);
          engine->load_states(source, from->counters);
        }
        SampleLoader loader({.accumulation = row.accumulation,
                             .rank = mesh->coordinate(comm::MeshDim::kDp),
                             .world_size = row.ranks});
        for (int64_t i = 0; i < first * row.accumulation; ++i) loader.next();
        std::vector<double> own;
        for (int64_t step = first; step < last; ++step) {
          own.push_back(engine->train_batch(loader).loss);
        }
        engine::SavedRun::Sink sink(to);
        engine->save_states(sink);
        if (mesh->rank() != 0) return;
        losses = own;
        to.counters = engine->counters();
      },
      options);
  to.check_complete();
  return losses;
}

}  // namespace

TEST_CASE("every optimizer takes the reference's path, sharded or not") {
  RowChecker checker;
  for (const Training training : {Training::kAdamL2, Training::kLion, Training::kSgd,
                                  Training::kAdagrad, Training::kLamb, Training::kOneCycle}) {
    checker.check(of(training, 0, 1, 1));
    checker.check(of(training, 2, 3, 2));
    Row row = of(training, 3, 2, 1);
    row.zero.sub_group_size_elements = 1'000;
    row.recompute.every_nth_block = 1;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

TEST_CASE(
    "moments of 8 bits take bitsandbytes' path, sharded or not, and where ranks share layers") {
  RowChecker checker;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int tensor : {1, 2}) {
      Row row = of(Training::kAdamW8bit, stage, stage == 0 ? 1 : 4 - stage, stage == 2 ? 2 : 1);
      row.tensor = tensor;
      if (stage == 3) row.zero.sub_group_size_elements = 300;
      checker.check(row);
    }
  }
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const int stage : {0, 1, 3}) {
      Row row = of(Training::kAdamW8bit, stage, stage == 0 ? 1 : 2, 1);
      row.precision = precision;
      checker.check_near(row, "adamw_8bit");
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE(
    "moments of 8 bits go on where they were saved, and near it where layers are cut otherwise") {
  if (!testing::device_of_tests().is_cpu()) return;  // the ranks of a group need a GPU each
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Row row = of(Training::kAdamW8bit, stage, 2, 1);
    row.tensor = 2;
    engine::SavedRun whole, half, end, other;
    const std::vector<double> expected = train_part(row, 0, 8, nullptr, whole);
    std::vector<double> losses = train_part(row, 0, 4, nullptr, half);
    const std::vector<double> more = train_part(row, 4, 8, &half, end);
    losses.insert(losses.end(), more.begin(), more.end());
    CHECK(losses == expected);
    CHECK((end == whole));
    row.tensor = 1;
    const std::vector<double> near = train_part(row, 4, 8, &half, other);
    for (size_t i = 0; i < near.size(); ++i) CHECK(std::abs(near[i] - expected[4 + i]) < 2e-4);
  }
}

TEST_CASE("Lamb's norms are those of whole parameters, however stages, ranks and tiles cut them") {
  RowChecker checker;
  for (const int stage : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      Row row = of(Training::kLamb, stage, ranks, stage == 1 ? 2 : 1);
      row.zero.sub_group_size_elements = ranks == 3 ? 64 : 1'000'000;
      if (stage == 3) row.zero.param_persistence_threshold_elements = 1'000;
      checker.check(row);
    }
  }
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const int stage : {0, 1, 2, 3}) {
      Row row = of(Training::kLamb, stage, stage == 0 ? 1 : 2, stage == 2 ? 2 : 1);
      row.precision = precision;
      checker.check_near(row, "lamb");
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("norms and biases are left out of the decay in every stage") {
  RowChecker checker;
  for (const char* model : {"llama", "qwen3_tied", "gpt2"}) {
    for (const int stage : {0, 1, 2, 3}) {
      Row row = of(Training::kNoDecay, stage, stage == 0 ? 1 : 4 - stage, 1);
      row.model = model;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a mean of micro-batches is bare DeepSpeed's, however four of them are dealt") {
  RowChecker checker;
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      if (ranks == 1 && stage > 0) continue;
      Row row = of(Training::kAdamW, stage, ranks, 4 / ranks);
      row.masked = true;
      row.micro_batch_mean = true;
      checker.check(row);
    }
  }
  CHECK(load_fixture("llama")["micro_batch_mean"]["losses"] !=
        load_fixture("llama")["masked"]["losses"]);
  MESSAGE(checker.worst());
}

TEST_CASE("how gradients cross the ranks leaves the losses where they are") {
  RowChecker checker;
  for (const int stage : {0, 2, 3}) {
    Row row = of(Training::kAdamW, stage, 3, 2);
    row.gradients = {.predivide_factor = 2};
    checker.check(row);
    row.gradients = {.prescale = true};
    row.zero.reduce_scatter = false;
    row.zero.reduce_bucket_elements = 777;
    row.zero.allgather_bucket_elements = 4'321;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::optimizers_test
