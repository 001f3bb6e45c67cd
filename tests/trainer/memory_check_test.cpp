// What whole runs say of their memory, and which ones are refused.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "engine/memory/memory_check.h"
#include "tests/support/child_cgroup.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_memory.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::memory_check_test {
namespace {

using engine::memory_need;

constexpr int64_t kMib = int64_t{1} << 20;

engine::RunMemory beside(const RunPlan& plan, const engine::FreeSpace& left) {
  engine::RunMemory run = run_memory(plan, left.ranks);
  run.free = left;
  return run;
}

std::string refusal_of(const RunPlan& plan, const engine::FreeSpace& left) {
  try {
    engine::require_memory(beside(plan, left));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Two ranks on the CPU that train the workbench's model.
RunPlan two_ranks(const Workbench& bench) {
  const std::string line = fmt::format("--model {} --data {} --seq-len 16 --micro-batch 1",
                                       (bench / "model").string(), (bench / "train.bin").string());
  return make_plan(parse_line(line), 2);
}

engine::FreeSpace of_two_ranks() {
  engine::FreeSpace left;
  left.ranks = 2;
  return left;
}

int64_t need_with(const RunPlan& plan, int stage) {
  const engine::RunMemory run = run_memory(plan, 2);
  configs::Config config = plan.config;
  config.zero.stage = stage;
  return run.estimate(config, run.options).peak().device * 2;
}

// Turns the workbench's model into one of which only a description is there.
void make_large(const Workbench& bench, int64_t hidden, int64_t layers) {
  bench.write("model/config.json", fmt::format(R"({{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 448,
    "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {},
    "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
    "torch_dtype": "float32"}})",
                                               hidden, 4 * hidden, layers));
}

// Terabytes.
void make_huge(const Workbench& bench) {
  make_large(bench, 16384, 400);
}

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --micro-batch 1 --steps 1";

}  // namespace

TEST_CASE("a run that fits is not refused, nor one of which nothing is known") {
  const Workbench bench;
  const RunPlan plan = two_ranks(bench);
  engine::FreeSpace left = of_two_ranks();
  CHECK(refusal_of(plan, left).empty());
  left.host = FreeMemory{memory_need(beside(plan, left)).host, "the limit"};
  CHECK(refusal_of(plan, left).empty());
  CHECK(memory_need(beside(plan, left)).host == 2 * run_memory(plan, 2).memory.peak().device);
}

TEST_CASE("a run that host memory cannot hold is refused with the smallest change that fits") {
  const Workbench bench;
  const RunPlan plan = two_ranks(bench);
  engine::FreeSpace left = of_two_ranks();
  REQUIRE(need_with(plan, 2) < need_with(plan, 0));
  left.host = FreeMemory{need_with(plan, 2), "/sys/fs/cgroup/job/memory.max: a limit"};
  const std::string refusal = refusal_of(plan, left);
  CHECK_MESSAGE(refusal.starts_with("the run needs "), refusal);
  CHECK(has(refusal, " (/sys/fs/cgroup/job/memory.max: a limit); 2 ranks with parameters "));
  CHECK(has(refusal, ", gradients "));
  CHECK(has(refusal, ", optimizer states "));
  CHECK(has(refusal, "; this would fit:\n  zero_optimization.stage 2: "));
  CHECK_MESSAGE(has(refusal, "\n    in ds_config.json: \"zero_optimization\": {\"stage\": 2"),
                refusal);
}

TEST_CASE("a run that only files can make fit is told what goes there") {
  const Workbench bench;
  make_large(bench, 2048, 16);
  const RunPlan plan = two_ranks(bench);
  engine::FreeSpace left = of_two_ranks();
  left.host = FreeMemory{need_with(plan, 3) - 1, "the limit"};
  const std::string refusal = refusal_of(plan, left);
  CHECK_MESSAGE(has(refusal, "offload_optimizer.device \"nvme\""), refusal);
  CHECK(has(refusal, " in files"));
  left.host->bytes = 1000;
  CHECK_MESSAGE(has(refusal_of(plan, left),
                    "it does not fit even with full sharding and offload; the smallest need is"),
                refusal_of(plan, left));
}

TEST_CASE("a run whose files the disk cannot hold is refused") {
  const Workbench bench;
  RunPlan plan = two_ranks(bench);
  engine::FreeSpace left = of_two_ranks();
  plan.config.zero.offload_optimizer.device = configs::OffloadDevice::kNvme;
  plan.config.zero.offload_optimizer.nvme_path = "/nvme";
  const int64_t files = memory_need(beside(plan, left)).files.at("/nvme");
  CHECK(files == 2 * run_memory(plan, 2).memory.states.file);
  left.disks["/nvme"].free = files;
  CHECK(refusal_of(plan, left).empty());
  left.disks["/nvme"].free = files - 1;
  const std::string refusal = refusal_of(plan, left);
  CHECK_MESSAGE(has(refusal, fmt::format("({} bytes) in files in /nvme, but its disk has ", files)),
                refusal);
  CHECK(has(refusal, fmt::format("free ({} bytes)", files - 1)));
  CHECK(has(refusal, "would fit:\n  zero_optimization.stage 2: "));
  left.disks["/nvme"].free = 1000;
  CHECK(has(refusal_of(plan, left),
            "would fit:\n  zero_optimization.offload_optimizer.device \"cpu\": "));
}

TEST_CASE("a model that no machine can hold is refused before anything is allocated") {
  const Workbench bench;
  make_huge(bench);
  const auto result = bench.zeroth(2, kTrain);
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "[0] finetune: error: the run needs "), result.err);
  CHECK(has(result.err, "TiB of host memory on this machine, but "));
  CHECK(has(result.err, "2 ranks with parameters "));
  CHECK_FALSE(has(result.out, "memory     "));
  const auto printed = bench.finetune(fmt::format("{} --print-config", kTrain));
  CHECK_MESSAGE(printed.code == 0, printed.err);
}

TEST_CASE("the limit of a control group is kept") {
  const Workbench bench;
  const ChildCgroup group(512 * kMib);
  if (!group.obstacle().empty()) {
    MESSAGE("skipped, a child control group cannot be made: " << group.obstacle());
    return;
  }
  make_huge(bench);
  const auto result = bench.shell(
      fmt::format("echo $$ >'{}'; \"$FINETUNE\" {}", group.processes().string(), kTrain));
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, group.processes().parent_path().string() + "/memory."), result.err);
  CHECK(has(result.err, ": 512 MiB, "));
}

TEST_CASE("the summary tells the memory before weights are read") {
  const Workbench bench;
  bench.write("ds.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer":
                             {"device": "nvme", "nvme_path": "swap"}}})");
  const auto result = bench.zeroth(2, fmt::format("{} --deepspeed ds.json", kTrain));
  REQUIRE_MESSAGE(result.code == 0, result.err);
  CHECK_MESSAGE(has(result.out, "[0] memory     each rank, memory: parameters "), result.out);
  CHECK(has(result.out, "[0] memory     each rank, files: optimizer states "));
  CHECK(has(result.out, "[0] memory     2 ranks: "));
}

}  // namespace zeroth::trainer::memory_check_test
