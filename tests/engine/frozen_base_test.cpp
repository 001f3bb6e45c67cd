// What a run saves that trains a part of a model, as adapters over a base: that part alone.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/state/model_sink.h"
#include "model/weight_source.h"
#include "tests/engine/chain_config.h"
#include "tests/engine/saved_run.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::frozen_base_test {
namespace {

constexpr char kFrozen[] = "layers.1.weight";

struct Collected final : ModelSink {
  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype) override {
    for (const auto& parameter : parameters) planned.push_back(parameter.name);
  }
  void write(const std::string& name, const torch::Tensor& value) override {
    written.push_back(name);
    values[name] = value.clone();
  }
  std::vector<std::string> planned, written;
  std::map<std::string, torch::Tensor> values;
};

// The base's values; of no other parameter may any be read.
class BaseSource final : public model::WeightSource {
 public:
  explicit BaseSource(comm::DeviceMesh& mesh)
      : values_(values_of_blocks(testing::make_chain({.frozen = true}), mesh)) {}
  void read(const model::ParamSlice& part, torch::Tensor out) override {
    CHECK(part.name == kFrozen);
    values_->read(part, out);
  }

 private:
  std::shared_ptr<model::WeightSource> values_;
};

std::unique_ptr<Engine> make(const configs::Config& config,
                             const std::shared_ptr<comm::DeviceMesh>& mesh, InitOptions options) {
  return initialize(testing::make_chain({.frozen = true}), config, mesh, options);
}

testing::ChainLoader loader_of(const configs::Config& config, const comm::DeviceMesh& mesh) {
  return testing::ChainLoader({.global_batch = config.batch.train_batch_size,
                               .accumulation = config.batch.accumulation_steps,
                               .rank = mesh.rank(),
                               .world_size = mesh.world_size()});
}

std::vector<double> train(Engine& engine, testing::ChainLoader& loader, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(engine.train_batch(loader).loss);
  return losses;
}

void for_each_strategy(const std::function<void(const configs::Config&, int ranks)>& check) {
  for (const int ranks : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(ranks);
      CAPTURE(stage);
      configs::Config config = chain_config(6 / ranks, 2, ranks);
      config.zero.stage = stage;
      if (stage % 2 == 1) config.precision = configs::Precision::kBf16;
      check(config, ranks);
    }
  }
}

// A block of the chain with a frozen bias, of which 16 bits hold no value.
class KeptBias final : public model::Block {
 public:
  KeptBias()
      : Block("kept"),
        bias_(register_parameter("bias", torch::full({6}, kBias), /*requires_grad=*/false)),
        factor_(register_parameter("factor", torch::full({6}, 0.5))) {}
  static constexpr double kBias = 5.0009765625;

  std::vector<std::string> keep_in_fp32() const override { return {"bias"}; }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    CHECK(at::equal(bias_, torch::full({6}, kBias)));
    return x * factor_;
  }

 private:
  torch::Tensor bias_, factor_;
};

}  // namespace

TEST_CASE("a run resumes bit by bit from states without the frozen base, which it reads anew") {
  for_each_strategy([](const configs::Config& config, int ranks) {
    SavedRun saved;
    std::vector<double> expected, resumed;
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = make(config, mesh, {.saves_frozen = false});
      testing::ChainLoader loader = loader_of(config, *mesh);
      train(*engine, loader, 2);
      SavedRun::Sink sink(saved);
      engine->save_states(sink);
      if (mesh->rank() == 0) saved.counters = engine->counters();
      const std::vector<double> losses = train(*engine, loader, 2);
      if (mesh->rank() == 0) expected = losses;
    });
    saved.check_complete();
    CHECK(!saved.holds(kFrozen));
    CHECK(saved.holds("layers.1.bias"));
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto engine = make(config, mesh,
                               {.weights = std::make_shared<BaseSource>(*mesh),
                                .awaits_checkpoint = true,
                                .saves_frozen = false});
      SavedRun::Source source(saved);
      engine->load_states(source, saved.counters);
      testing::ChainLoader loader = loader_of(config, *mesh);
      for (int64_t i = 0; i < 2 * config.batch.accumulation_steps; ++i) loader.next();
      const std::vector<double> losses = train(*engine, loader, 2);
      if (mesh->rank() == 0) resumed = losses;
    });
    CHECK(resumed == expected);
  });
}

TEST_CASE("only trained parameters are saved, and no other unit is gathered for it") {
  for_each_strategy([](const configs::Config& config, int ranks) {
    Collected all, trained;
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      for (const bool saves_frozen : {true, false}) {
        const auto engine = make(config, mesh, {.saves_frozen = saves_frozen});
        engine->save_model(saves_frozen ? all : trained, SavedValues::kMasters);
        if (!saves_frozen) CHECK(engine->impl().store().buffers().peak_live_elements() == 0);
      }
    });
    CHECK(all.values.contains(kFrozen));
    all.values.erase(kFrozen);
    CHECK(trained.planned == trained.written);
    REQUIRE(trained.values.size() == all.values.size());
    for (const auto& [name, value] : all.values) {
      CAPTURE(name);
      CHECK(at::equal(trained.values.at(name), value));
    }
  });
}

TEST_CASE("a parameter that is kept in fp32 is that in a run of 16 bits, and in what it saves") {
  for_each_strategy([](const configs::Config& config, int ranks) {
    Collected working, masters;
    SavedRun saved, resumed;
    testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto make_kept = [&] {
        model::Blocks blocks = testing::make_chain();
        blocks.insert(blocks.begin() + 1, std::make_shared<KeptBias>());
        return initialize(std::move(blocks), config, mesh);
      };
      const auto engine = make_kept();
      testing::ChainLoader loader = loader_of(config, *mesh);
      train(*engine, loader, 2);
      engine->save_model(working);
      engine->save_model(masters, SavedValues::kMasters);
      SavedRun::Sink sink(saved);
      engine->save_states(sink);
      const auto other = make_kept();
      SavedRun::Source source(saved);
      other->load_states(source, engine->counters());
      SavedRun::Sink again(resumed);
      other->save_states(again);
      if (mesh->rank() == 0) saved.counters = resumed.counters = engine->counters();
    });
    const bool bf16 = config.precision == configs::Precision::kBf16;
    for (const Collected& model : {working, masters})
      CHECK(at::equal(model.values.at("kept.bias"), torch::full({6}, KeptBias::kBias)));
    CHECK((working.values.at("kept.factor").scalar_type() == torch::kBFloat16) == bf16);
    CHECK(saved.holds("kept.bias"));
    CHECK(saved == resumed);
  });
}

}  // namespace zeroth::engine::frozen_base_test
