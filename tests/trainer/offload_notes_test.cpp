#include "trainer/report/offload_notes.h"

#include <doctest/doctest.h>

namespace zeroth::trainer {
namespace {

using configs::RestingPlace;
using Notes = std::vector<std::string>;

engine::RunMemory training_run() {
  engine::RunMemory run;
  run.config.zero.stage = 3;
  return run;
}

}  // namespace

TEST_CASE("host memory as a resting place is said to move nothing in a run on the CPU") {
  engine::RunMemory run = training_run();
  CHECK(offload_notes(run).empty());
  run.config.zero.offload_optimizer.device = RestingPlace::kCpu;
  run.config.zero.offload_param.device = RestingPlace::kCpu;
  run.config.recompute = {.every_nth_block = 1, .cpu_checkpointing = true};
  const std::string why = " moves nothing: this run computes in host memory";
  CHECK(offload_notes(run) == Notes{"zero_optimization.offload_optimizer.device \"cpu\"" + why,
                                    "zero_optimization.offload_param.device \"cpu\"" + why,
                                    "activation_checkpointing.cpu_checkpointing" + why});
  run.options.trains = false;
  CHECK(offload_notes(run) == Notes{"zero_optimization.offload_param.device \"cpu\"" + why});
  run.options.device = torch::kCUDA;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("a step on a GPU is asked for in vain on the CPU, wherever states rest") {
  engine::RunMemory run = training_run();
  run.memory.states.file = 4096;
  run.config.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::Step::kGpu;
  CHECK(offload_notes(run).empty());
  for (const auto place : {RestingPlace::kCpu, RestingPlace::kNvme}) {
    run.config.zero.offload_optimizer.device = place;
    REQUIRE_FALSE(offload_notes(run).empty());
    CHECK(offload_notes(run).back() ==
          "zero_optimization.offload_optimizer.step \"gpu\" moves nothing: this run computes in "
          "host memory");
  }
  run.options.device = torch::kCUDA;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("a file in which nothing rests is told with the keys that keep it empty") {
  engine::RunMemory run = training_run();
  run.config.zero.offload_param = {.device = RestingPlace::kNvme, .max_in_cpu_elements = 5000};
  run.memory.parameters.device = 4096;
  CHECK(offload_notes(run) ==
        Notes{"zero_optimization.offload_param.device \"nvme\": nothing rests in a file: "
              "max_in_cpu 5000 and stage3_param_persistence_threshold 100000 keep all in memory"});
  run.memory.parameters.file = 4096;
  CHECK(offload_notes(run).empty());
}

TEST_CASE("an optimizer's file that stays empty is told with the reason") {
  engine::RunMemory run = training_run();
  run.config.zero.offload_optimizer = {.device = RestingPlace::kNvme, .ratio = 0.25};
  const std::string start =
      "zero_optimization.offload_optimizer.device \"nvme\": nothing rests in a file: ";
  CHECK(offload_notes(run) == Notes{start + "this optimizer has no state"});
  run.memory.states.device = 4096;
  CHECK(offload_notes(run) == Notes{start + "ratio 0.25 leaves no unit for it"});
  run.memory.states.file = 4096;
  CHECK(offload_notes(run).empty());
}

}  // namespace zeroth::trainer
