#include "trainer/offload_notes.h"

#include <doctest/doctest.h>

#include "tests/trainer/counting_dataset.h"

namespace zeroth::trainer {
namespace {

using configs::RestingPlace;
using Notes = std::vector<std::string>;

RunPlan training_plan() {
  RunPlan plan;
  plan.train = std::make_unique<CountingDataset>(32, 8);
  plan.config.zero.stage = 3;
  return plan;
}

}  // namespace

TEST_CASE("host memory as a resting place is said to move nothing in a run on the CPU") {
  RunPlan plan = training_plan();
  CHECK(offload_notes(plan).empty());
  plan.config.zero.offload_optimizer.device = RestingPlace::kCpu;
  plan.config.zero.offload_param.device = RestingPlace::kCpu;
  plan.config.recompute = {.every_nth_block = 1, .cpu_checkpointing = true};
  const std::string why = " moves nothing: this run computes in host memory";
  CHECK(offload_notes(plan) == Notes{"zero_optimization.offload_optimizer.device \"cpu\"" + why,
                                     "zero_optimization.offload_param.device \"cpu\"" + why,
                                     "activation_checkpointing.cpu_checkpointing" + why});
  plan.train = nullptr;
  CHECK(offload_notes(plan) == Notes{"zero_optimization.offload_param.device \"cpu\"" + why});
  plan.device = torch::kCUDA;
  CHECK(offload_notes(plan).empty());
}

TEST_CASE("a step on a GPU is asked for in vain on the CPU, wherever states rest") {
  RunPlan plan = training_plan();
  plan.outline.memory.states.file = 4096;
  plan.config.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::Step::kGpu;
  CHECK(offload_notes(plan).empty());
  for (const auto place : {RestingPlace::kCpu, RestingPlace::kNvme}) {
    plan.config.zero.offload_optimizer.device = place;
    REQUIRE_FALSE(offload_notes(plan).empty());
    CHECK(offload_notes(plan).back() ==
          "zero_optimization.offload_optimizer.step \"gpu\" moves nothing: this run computes in "
          "host memory");
  }
  plan.device = torch::kCUDA;
  CHECK(offload_notes(plan).empty());
}

TEST_CASE("a file in which nothing rests is told with the keys that keep it empty") {
  RunPlan plan = training_plan();
  plan.config.zero.offload_param = {.device = RestingPlace::kNvme, .max_in_cpu_elements = 5000};
  plan.outline.memory.parameters.device = 4096;
  CHECK(offload_notes(plan) ==
        Notes{"zero_optimization.offload_param.device \"nvme\": nothing rests in a file: "
              "max_in_cpu 5000 and stage3_param_persistence_threshold 100000 keep all in memory"});
  plan.outline.memory.parameters.file = 4096;
  CHECK(offload_notes(plan).empty());
}

TEST_CASE("an optimizer's file that stays empty is told with the reason") {
  RunPlan plan = training_plan();
  plan.config.zero.offload_optimizer = {.device = RestingPlace::kNvme, .ratio = 0.25};
  const std::string start =
      "zero_optimization.offload_optimizer.device \"nvme\": nothing rests in a file: ";
  CHECK(offload_notes(plan) == Notes{start + "this optimizer has no state"});
  plan.outline.memory.states.device = 4096;
  CHECK(offload_notes(plan) == Notes{start + "ratio 0.25 leaves no unit for it"});
  plan.outline.memory.states.file = 4096;
  CHECK(offload_notes(plan).empty());
}

}  // namespace zeroth::trainer
