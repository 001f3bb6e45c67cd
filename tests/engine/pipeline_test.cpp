// Training on the stages of a pipeline, against one rank.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/state/model_sink.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "zero/memory_plan.h"

namespace zeroth::engine::pipeline_test {
namespace {

using Schedule = configs::PipelineConfig::Schedule;
using enum Schedule;

struct Case {
  int64_t stages = 1;
  Schedule schedule = k1F1B;
  int64_t virtual_stages = 0;
  int64_t accumulation = 4;
  int stage = 0;  // of ZeRO
  int data = 1;
  bool tied = false;
  bool frozen = false;
  configs::RecomputeConfig recompute = {};

  std::string name() const {
    return fmt::format(
        "stages {}, schedule {}, chunks {}, accumulation {}, stage {}, data {}{}{}{}", stages,
        static_cast<int>(schedule), virtual_stages, accumulation, stage, data, tied ? ", tied" : "",
        frozen ? ", frozen" : "", recompute.is_on() ? ", recompute" : "");
  }
};

using Values = std::map<std::string, torch::Tensor>;

class Collected final : public ModelSink {
 public:
  explicit Collected(Values& values) : values_(values) {}
  void begin(const std::vector<model::PlannedTensor>&, torch::Dtype) override {}
  void write(const std::string& name, const torch::Tensor& value) override {
    values_[name] = value.clone();
  }

 private:
  Values& values_;
};

struct Trained {
  std::vector<double> losses, norms;
  double eval_loss = 0;
  Values values;
};

constexpr int64_t kSamples = 16;  // per step

Trained train(const Case& test) {
  Trained result;
  std::mutex mutex;
  const comm::MeshShape grid = comm::MeshShape()
                                   .with(comm::MeshDim::kPp, static_cast<int>(test.stages))
                                   .with(comm::MeshDim::kDp, test.data);
  testing::run_ranks(
      grid.ranks(),
      [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
        configs::Config config =
            chain_config(kSamples / test.accumulation / test.data, test.accumulation, test.data);
        config.zero.stage = test.stage;
        config.recompute = test.recompute;
        config.pipeline.stages = test.stages;
        config.pipeline.schedule = test.schedule;
        config.pipeline.virtual_stages = test.virtual_stages;
        const auto engine = testing::make_engine(
            testing::make_chain({.layers = 8, .tied = test.tied, .frozen = test.frozen}), config,
            mesh);
        const auto loader = [&] {
          return testing::ChainLoader({.global_batch = kSamples,
                                       .accumulation = test.accumulation,
                                       .rank = mesh->coordinate(comm::MeshDim::kDp),
                                       .world_size = test.data});
        };
        testing::ChainLoader train_data = loader(), eval_data = loader();
        Trained own;
        for (int step = 0; step < 5; ++step) {
          const StepStats stats = engine->train_batch(train_data);
          own.losses.push_back(stats.loss);
          own.norms.push_back(stats.grad_norm);
        }
        own.eval_loss = engine->eval_batch(eval_data, test.accumulation).loss;
        Collected sink(own.values);
        engine->save_model(sink);
        const std::lock_guard lock(mutex);
        if (!result.losses.empty()) {
          CHECK(own.losses == result.losses);
          CHECK(own.norms == result.norms);
          CHECK(own.eval_loss == result.eval_loss);
        }
        own.values.merge(result.values);
        result = std::move(own);
      },
      {.grid = grid});
  return result;
}

void check_equal(const Trained& own, const Trained& expected) {
  CHECK(own.losses == expected.losses);
  CHECK(own.norms == expected.norms);
  CHECK(own.eval_loss == expected.eval_loss);
  REQUIRE(own.values.size() == expected.values.size());
  for (const auto& [name, value] : expected.values) {
    INFO(name);
    CHECK(at::equal(own.values.at(name), value));
  }
}

void check_near(const Trained& own, const Trained& expected) {
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    CHECK(own.losses[step] == doctest::Approx(expected.losses[step]).epsilon(1e-5));
    CHECK(own.norms[step] == doctest::Approx(expected.norms[step]).epsilon(1e-5));
  }
  REQUIRE(own.values.size() == expected.values.size());
  for (const auto& [name, value] : expected.values) {
    INFO(name);
    CHECK(at::allclose(own.values.at(name), value, 1e-4, 1e-5));
  }
}

}  // namespace

TEST_CASE("every schedule gives the bits of one rank") {
  for (const int64_t accumulation : {1, 2, 4, 8}) {
    const Trained expected = train({.accumulation = accumulation});
    for (const int64_t stages : {2, 4}) {
      for (const Schedule schedule :
           {k1F1B, kGPipe, kInterleaved1F1B, kZbH1, kZbV, kBreadthFirst}) {
        const Case test{.stages = stages, .schedule = schedule, .accumulation = accumulation};
        CAPTURE(test.name());
        check_equal(train(test), expected);
      }
    }
  }
}

TEST_CASE("stages of several data-parallel ranks give the bits of these ranks alone") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const Schedule schedule : {k1F1B, kInterleaved1F1B}) {
      const Case test{
          .stages = 2, .schedule = schedule, .accumulation = 4, .stage = stage, .data = 2};
      CAPTURE(test.name());
      // With stages, stage 2 reduces once per step, as stage 1 does. At stage 3 a block that is a
      // chunk by itself has runs of backward passes, which are summed before they are reduced.
      const Trained expected =
          train({.accumulation = 4, .stage = stage == 2 ? 1 : stage, .data = 2});
      if (stage == 3 && schedule == kInterleaved1F1B) {
        check_near(train(test), expected);
      } else {
        check_equal(train(test), expected);
      }
    }
  }
}

TEST_CASE("a tied weight of two stages is the same in both and is counted once") {
  for (const int data : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      const Case test{.stages = 2, .stage = stage, .data = data, .tied = true};
      CAPTURE(test.name());
      check_near(train(test), train({.stage = stage, .data = data, .tied = true}));
    }
  }
}

TEST_CASE("stages recompute, and run frozen layers, as one rank does") {
  for (const bool frozen : {false, true}) {
    const Trained expected = train({.frozen = frozen});
    for (const Schedule schedule : {k1F1B, kGPipe, kInterleaved1F1B, kZbV, kBreadthFirst}) {
      const Case test{
          .stages = 4, .schedule = schedule, .frozen = frozen, .recompute = {.every_nth_block = 1}};
      CAPTURE(test.name());
      check_equal(train(test), expected);
    }
  }
}

TEST_CASE("an evaluation stops on every stage at the request of one rank, and training goes on") {
  for (const Schedule schedule : {k1F1B, kGPipe, kInterleaved1F1B, kZbV, kBreadthFirst}) {
    CAPTURE(static_cast<int>(schedule));
    testing::run_ranks(2,
                       [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
                         configs::Config config = chain_config(2, 4, 1);
                         config.pipeline = {
                             .stages = 2, .schedule = schedule, .partition = "uniform"};
                         const auto engine =
                             testing::make_engine(testing::make_chain({.layers = 8}), config, mesh);
                         // The last rank requests a stop after its twentieth micro-batch.
                         struct Stopping final : DataLoader {
                           explicit Stopping(bool is_asking) : asks(is_asking) {}
                           model::MicroBatch next() override {
                             ++drawn;
                             return loader.next();
                           }
                           bool stop_requested() override { return asks && drawn >= 20; }
                           bool asks;
                           int drawn = 0;
                           testing::ChainLoader loader{{.global_batch = 8, .accumulation = 4}};
                         } stopping(mesh->rank() == 1);
                         CHECK(engine->eval_batch(stopping, 1000).stop_requested);
                         testing::ChainLoader loader({.global_batch = 8, .accumulation = 4});
                         CHECK(engine->train_batch(loader).loss > 0);
                         CHECK(engine->eval_batch(loader, 40).loss > 0);
                       },
                       {.grid = comm::MeshShape().with(comm::MeshDim::kPp, 2)});
  }
}

TEST_CASE("tied weights begin with the first stage's values, whatever ranks begin with") {
  testing::run_ranks(2,
                     [](const std::shared_ptr<comm::DeviceMesh>& mesh) {
                       const model::Blocks blocks = testing::make_chain({.tied = true});
                       const torch::NoGradGuard no_grad;
                       if (mesh->rank() == 1) {
                         for (const auto& block : blocks)
                           for (torch::Tensor& parameter : block->parameters()) parameter.fill_(7);
                       }
                       configs::Config config = chain_config(2, 2, 1);
                       config.pipeline = {.stages = 2, .partition = "uniform"};
                       const auto engine = testing::make_engine(blocks, config, mesh);
                       for (size_t unit = 0; unit < engine->impl().plan().units.size(); ++unit)
                         CHECK_FALSE(testing::shard_of(*engine, unit).eq(7).any().item<bool>());
                     },
                     {.grid = comm::MeshShape().with(comm::MeshDim::kPp, 2)});
}

TEST_CASE("a step that ended in its middle is not followed by another one") {
  testing::run_ranks(
      2,
      [](const std::shared_ptr<comm::DeviceMesh>& mesh) {
        configs::Config config = chain_config(2, 2, 1);
        config.pipeline = {.stages = 2, .partition = "uniform"};
        const auto engine = testing::make_engine(testing::make_chain({}), config, mesh);
        struct Failing final : DataLoader {
          model::MicroBatch next() override {
            if (++drawn == 3) throw Error("no more");
            return loader.next();
          }
          int drawn = 0;
          testing::ChainLoader loader{{.global_batch = 4, .accumulation = 2}};
        } loader;
        engine->train_batch(loader);
        CHECK_THROWS_WITH_AS(engine->train_batch(loader), "no more", Error);
        CHECK_THROWS_WITH_AS(engine->train_batch(loader),
                             doctest::Contains("the step before ended in its middle"), Error);
      },
      {.grid = comm::MeshShape().with(comm::MeshDim::kPp, 2)});
}

// DeepSpeed's TestPipeGradientAccumulationScaling: two weights of 1, input 1, target 0, two
// micro-batches, SGD at 0.1.
struct Weight final : model::Block {
  explicit Weight(const std::string& label) : Block(label) {
    weight_ = register_parameter("weight", torch::ones({1}));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    if (!x.defined()) return torch::ones({batch.tokens.numel(), 1}) * weight_;
    return (x * weight_).square().sum() / batch.loss_normalizer;
  }
  torch::Tensor weight_;
};

TEST_CASE("gradients of a pipeline's micro-batches are scaled once") {
  testing::run_ranks(2,
                     [](const std::shared_ptr<comm::DeviceMesh>& mesh) {
                       configs::Config config = chain_config(1, 2, 1);
                       config.optimizer = {.kind = configs::OptimizerConfig::Kind::kSgd, .lr = 0.1};
                       config.optimizer.weight_decay = 0;
                       config.gradient_clipping = 0;
                       config.pipeline.stages = 2;
                       const auto engine = testing::make_engine(
                           {std::make_shared<Weight>("one"), std::make_shared<Weight>("two")},
                           config, mesh);
                       struct Ones final : DataLoader {
                         model::MicroBatch next() override {
                           model::MicroBatch batch;
                           batch.tokens = batch.targets = torch::zeros({1, 1}, torch::kLong);
                           return batch;
                         }
                       } loader;
                       CHECK(engine->train_batch(loader).loss == 1);
                       Values values;
                       Collected sink(values);
                       engine->save_model(sink);
                       if (mesh->rank() > 0) return;
                       for (const char* name : {"one.weight", "two.weight"})
                         CHECK(values.at(name).item<float>() == doctest::Approx(0.8));
                     },
                     {.grid = comm::MeshShape().with(comm::MeshDim::kPp, 2)});
}

TEST_CASE("the memory of each stage is the planned one") {
  struct MemoryCase {
    int stages;
    int stage;  // of ZeRO
    Schedule schedule;
  };
  for (const MemoryCase test :
       {MemoryCase{2, 0, k1F1B}, MemoryCase{2, 3, kInterleaved1F1B}, MemoryCase{4, 1, kGPipe},
        MemoryCase{2, 2, kZbV}, MemoryCase{4, 3, kBreadthFirst}}) {
    CAPTURE(test.stages);
    CAPTURE(test.stage);
    const int data = 4 / test.stages;
    testing::run_ranks(
        4,
        [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
          configs::Config config = chain_config(2, 4, data);
          config.zero.stage = test.stage;
          config.pipeline = {
              .stages = test.stages, .schedule = test.schedule, .partition = "uniform"};
          const auto engine =
              testing::make_engine(testing::make_chain({.hidden = 40, .layers = 8}), config, mesh);
          testing::ChainLoader loader({.global_batch = config.batch.train_batch_size,
                                       .accumulation = 4,
                                       .rank = mesh->coordinate(comm::MeshDim::kDp),
                                       .world_size = data});
          for (int step = 0; step < 2; ++step) engine->train_batch(loader);
          const zero::MemoryPlan memory = engine->memory();
          zero::ParamStore& store = engine->impl().store();
          CHECK(memory.gathered.device == store.buffers().pooled_bytes());
          CHECK(memory.parameters.device == store.persistent_bytes());
          const zero::GradReducer& grads = engine->impl().grads();
          CHECK(memory.gradient_buffers.device == grads.buffer_bytes());
          CHECK(memory.gradients.device == grads.persistent_bytes() - grads.buffer_bytes());
          int64_t updates = 0;
          for (const zero::Unit& unit : engine->impl().plan().units)
            updates += unit.is_trained_here() ? 2 * unit.owned_range().size() * 4 : 0;
          CHECK(memory.states.device == updates);
        },
        {.grid = comm::MeshShape()
                     .with(comm::MeshDim::kPp, test.stages)
                     .with(comm::MeshDim::kDp, data)});
  }
}

}  // namespace zeroth::engine::pipeline_test
