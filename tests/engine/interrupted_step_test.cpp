// A step that throws half-way has not taken place: updates that wait are neither lost nor applied
// twice, and of its gradients nothing stays.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/state/run_state.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/support/same_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::interrupted_step_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;
using Schedule = configs::PipelineConfig::Schedule;

// How many calls are left before one throws; -1: none does.
struct CallsLeft {
  int forward = -1;
  int backward = -1;
};

void count(int& calls_left) {
  if (calls_left-- == 0) throw Error("trapped");
}

struct TrapFunction : torch::autograd::Function<TrapFunction> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               int64_t calls_left) {
    context->saved_data["calls_left"] = calls_left;
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const int64_t calls_left = context->saved_data["calls_left"].toInt();
    count(reinterpret_cast<CallsLeft*>(calls_left)->backward);
    return {grads[0], torch::Tensor()};
  }
};

// Passes on what it gets, until it is told to throw.
struct Trap final : model::Block {
  explicit Trap(CallsLeft* calls_left) : Block("trap"), calls_left_(calls_left) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    count(calls_left_->forward);
    return TrapFunction::apply(x, reinterpret_cast<int64_t>(calls_left_));
  }
  CallsLeft* calls_left_;
};

model::Blocks chain_with_trap(CallsLeft& calls_left) {
  model::Blocks blocks = testing::make_chain({.tied = true});
  blocks.insert(blocks.begin() + 2, std::make_shared<Trap>(&calls_left));
  return blocks;
}

struct Trained {
  std::vector<double> numbers;  // losses and norms
  std::vector<torch::Tensor> masters;
};

enum class Interrupted { kThrows, kSkipped };

// Six steps, before three of which others and evaluations are interrupted in the middle of the
// chain; or only drawn from the loader.
Trained train(Engine& engine, CallsLeft& calls_left, Interrupted interrupted) {
  const comm::DeviceMesh& mesh = engine.mesh();
  const int64_t accumulation = engine.config().batch.accumulation_steps;
  testing::ChainLoader loader(
      {.accumulation = accumulation, .rank = mesh.rank(), .world_size = mesh.world_size()});
  const auto skip = [&](int64_t micro_batches) {
    for (int64_t i = 0; i < micro_batches; ++i) loader.next();
  };
  const auto interrupt = [&](CallsLeft calls) {
    if (interrupted == Interrupted::kSkipped) return skip(accumulation);
    calls_left = calls;
    CHECK_THROWS_AS(engine.train_batch(loader), Error);
    calls_left = {};
  };
  const auto interrupt_evaluation = [&](int calls) {
    if (interrupted == Interrupted::kSkipped) return skip(calls + 1);
    calls_left = {.forward = calls};
    CHECK_THROWS_AS(engine.eval_batch(loader, 2), Error);
    calls_left = {};
  };
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    if (step % 2 == 1) {
      for (int micro = 0; micro < accumulation; ++micro) {
        interrupt({.forward = micro});
        interrupt_evaluation(0);
        interrupt({.backward = micro});
      }
      if (step == 3) interrupt_evaluation(1);
    }
    const StepStats stats = engine.train_batch(loader);
    trained.numbers.push_back(stats.loss);
    trained.numbers.push_back(stats.grad_norm);
  }
  for (size_t unit = 0; unit < engine.impl().plan().units.size(); ++unit) {
    trained.masters.push_back(testing::read_master(engine.impl().optimizer(), unit));
  }
  return trained;
}

struct Case {
  int stage = 0;
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  OffloadDevice optimizer = OffloadDevice::kNone;
  Step step = Step::kCpu;
  Schedule schedule = Schedule::k1F1B;
};

configs::Config config_of(const Case& c, int ranks, const std::string& directory) {
  configs::Config config = chain_config(12 / (ranks * c.accumulation), c.accumulation, ranks);
  config.precision = c.precision;
  config.zero.stage = c.stage;
  config.pipeline.schedule = c.schedule;
  config.zero.sub_group_size_elements = 64;
  config.zero.offload_optimizer.device = c.optimizer;
  config.zero.offload_optimizer.nvme_path = directory;
  config.zero.offload_optimizer.step = c.step;
  const bool in_files = c.stage == 3 && c.optimizer == OffloadDevice::kNvme;
  if (in_files) config.zero.offload_param.device = OffloadDevice::kNvme;
  config.zero.offload_param.nvme_path = directory;
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

void for_each_case(const std::function<void(const Case&)>& visit) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
      for (const int64_t accumulation : {1, 2}) {
        CAPTURE(stage);
        CAPTURE(static_cast<int>(precision));
        CAPTURE(accumulation);
        visit({.stage = stage, .precision = precision, .accumulation = accumulation});
        if (accumulation == 1) continue;
        visit({.stage = stage,
               .precision = precision,
               .accumulation = accumulation,
               .schedule = Schedule::kBreadthFirst});
      }
    }
  }
}

Trained train_plain(const Case& c, const std::shared_ptr<comm::DeviceMesh>& mesh,
                    Interrupted interrupted) {
  const TempFolder directory;
  CallsLeft calls_left;
  const auto engine = testing::make_engine(
      chain_with_trap(calls_left), config_of(c, mesh->world_size(), directory.path()), mesh);
  return train(*engine, calls_left, interrupted);
}

// What a GPU run does, on the CPU: gradients land on the host while the device goes on.
std::unique_ptr<Engine> make_apart(const Case& c, const std::shared_ptr<comm::DeviceMesh>& mesh,
                                   CallsLeft& calls_left, const std::string& directory,
                                   const std::shared_ptr<device::HostLink>& link) {
  const auto apart = std::make_shared<comm::DeviceMesh>(testing::kFakeDevice,
                                                        std::make_unique<testing::SameGroup>(mesh));
  auto engine = std::make_unique<Engine>(chain_with_trap(calls_left),
                                         config_of(c, mesh->world_size(), directory), apart,
                                         InitOptions(), link);
  CallsLeft unused;
  load_values(engine->impl().sharded_state(), *values_of_blocks(chain_with_trap(unused), *mesh));
  return engine;
}

void check_bits(const Trained& actual, const Trained& expected) {
  CHECK(actual.numbers == expected.numbers);
  for (size_t unit = 0; unit < expected.masters.size(); ++unit) {
    CHECK(at::equal(actual.masters[unit], expected.masters[unit]));
  }
}

}  // namespace

TEST_CASE("training with interrupted steps has the bits of training without them") {
  for_each_case([](const Case& c) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const Trained expected = train_plain(c, mesh, Interrupted::kSkipped);
      check_bits(train_plain(c, mesh, Interrupted::kThrows), expected);
      Case in_files = c;
      in_files.optimizer = OffloadDevice::kNvme;
      check_bits(train_plain(in_files, mesh, Interrupted::kThrows), expected);
    });
  });
}

TEST_CASE("gradients of an interrupted step that were on their way to the host are dropped") {
  for_each_case([](const Case& c) {
    for (const int ranks : {1, 2}) {
      testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const TempFolder directory;
        Case on_host = c;
        on_host.optimizer = OffloadDevice::kCpu;
        const auto train_apart = [&](Interrupted interrupted) {
          CallsLeft calls_left;
          const auto engine =
              make_apart(on_host, mesh, calls_left, directory.path(), testing::late_link());
          return train(*engine, calls_left, interrupted);
        };
        // Breadth first, the uses of the tied weight are added on the host, each with the sum of
        // its micro-batches.
        const Trained expected = c.schedule == Schedule::kBreadthFirst
                                     ? train_apart(Interrupted::kSkipped)
                                     : train_plain(c, mesh, Interrupted::kSkipped);
        check_bits(train_apart(Interrupted::kThrows), expected);
      });
    }
  });
}

TEST_CASE("an engine that an interrupted step ends keeps its memory until all copies have ended") {
  for_each_case([](const Case& c) {
    for (const auto& [place, step] :
         {std::pair(OffloadDevice::kCpu, Step::kCpu), std::pair(OffloadDevice::kNvme, Step::kCpu),
          std::pair(OffloadDevice::kCpu, Step::kGpu)}) {
      for (const CallsLeft calls :
           {CallsLeft{.forward = 0}, CallsLeft{.backward = 0}, CallsLeft{.backward = 1}}) {
        testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          const TempFolder directory;
          Case away = c;
          away.optimizer = place;
          away.step = step;
          CallsLeft calls_left;
          const auto link = testing::late_link();
          auto engine = make_apart(away, mesh, calls_left, directory.path(), link);
          testing::ChainLoader loader({.accumulation = c.accumulation});
          engine->train_batch(loader);
          calls_left = calls;
          if (calls.backward < c.accumulation) {
            CHECK_THROWS_AS(engine->train_batch(loader), Error);
          }
          engine.reset();
          CHECK(testing::copies_of(*link).under_way() == 0);
        });
      }
    }
  });
}

}  // namespace zeroth::engine::interrupted_step_test
