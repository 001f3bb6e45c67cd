#include "trainer/memory_check.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "tests/support/child_cgroup.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

std::string refusal_of(const RunPlan& plan) {
  try {
    require_memory(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Two ranks on the CPU that train the workbench's model.
RunPlan two_ranks(const Workbench& bench) {
  const std::string line = fmt::format("--model {} --data {} --seq-len 16 --micro-batch 1",
                                       (bench / "model").string(), (bench / "train.bin").string());
  RunPlan plan = make_plan(parse_line(line), 2);
  plan.room.ranks = 2;
  return plan;
}

int64_t need_with(const RunPlan& plan, int stage) {
  configs::Config config = plan.config;
  config.zero.stage = stage;
  return outline_of(plan, config).memory.peak().device * 2;
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

TEST_CASE("memory is told by place and kind, and what the machine's ranks need together") {
  RunPlan plan;
  plan.room = {
      .ranks = 2, .host = HostRoom{4096 * kMib, "a file"}, .disks = {{"/nvme", {99 * kMib}}}};
  plan.outline.memory.parameters.device = 10 * kMib;
  plan.outline.memory.gradients.device = 5 * kMib;
  CHECK(memory_lines(plan) ==
        std::vector<std::string>{
            "each rank, memory: parameters 10.0 MiB, gradients 5.00 MiB",
            "2 ranks: 30.0 MiB of host memory of 4.00 GiB left; activations come on top"});
  plan.config.zero.offload_optimizer.nvme_path = "/nvme";
  plan.outline.memory.states.file = 20 * kMib;
  plan.outline.memory.file_buffers.device = 1 * kMib;
  CHECK(memory_lines(plan) ==
        std::vector<std::string>{
            "each rank, memory: parameters 10.0 MiB, gradients 5.00 MiB, file buffers 1.00 MiB",
            "each rank, files: optimizer states 20.0 MiB",
            "2 ranks: 32.0 MiB of host memory of 4.00 GiB left, 40.0 MiB in /nvme of 99.0 MiB "
            "free; activations come on top"});
}

TEST_CASE("beside a GPU its memory, pinned and other host memory are told apart") {
  RunPlan plan;
  plan.device = torch::kCUDA;
  plan.outline.memory.parameters.device = 10 * kMib;
  plan.outline.memory.states.pinned = 20 * kMib;
  plan.outline.memory.loading.host = 3 * kMib;
  CHECK(memory_lines(plan) ==
        std::vector<std::string>{"each rank, GPU memory: parameters 10.0 MiB",
                                 "each rank, pinned host memory: optimizer states 20.0 MiB",
                                 "each rank, host memory: 3.00 MiB while weights are loaded",
                                 "1 rank: 23.0 MiB of host memory; activations come on top"});
  CHECK_FALSE(gpu_warning(plan, 10 * kMib));
  CHECK(gpu_warning(plan, 9 * kMib) ==
        "training state needs 10.0 MiB on each GPU, activations not counted, but 9.00 MiB are "
        "free");
}

TEST_CASE("a run that fits is not refused, nor one of which nothing is known") {
  const Workbench bench;
  RunPlan plan = two_ranks(bench);
  CHECK(refusal_of(plan).empty());
  plan.room.host = HostRoom{memory_need(plan).host, "the limit"};
  CHECK(refusal_of(plan).empty());
  CHECK(memory_need(plan).host == 2 * plan.outline.memory.peak().device);
}

TEST_CASE("a run that host memory cannot hold is refused with the smallest change that fits") {
  const Workbench bench;
  RunPlan plan = two_ranks(bench);
  REQUIRE(need_with(plan, 2) < need_with(plan, 0));
  plan.room.host = HostRoom{need_with(plan, 2), "/sys/fs/cgroup/job/memory.max: a limit"};
  const std::string refusal = refusal_of(plan);
  CHECK_MESSAGE(refusal.starts_with("the run needs "), refusal);
  CHECK(has(refusal, " (/sys/fs/cgroup/job/memory.max: a limit); 2 ranks with parameters "));
  CHECK(has(refusal, ", gradients "));
  CHECK(has(refusal, ", optimizer states "));
  CHECK(has(refusal, "; this would fit:\n  zero_optimization.stage 2: "));
}

TEST_CASE("a run that only files can make fit is told what goes there") {
  const Workbench bench;
  make_large(bench, 2048, 16);
  RunPlan plan = two_ranks(bench);
  plan.room.host = HostRoom{need_with(plan, 3) - 1, "the limit"};
  const std::string refusal = refusal_of(plan);
  CHECK_MESSAGE(has(refusal, "offload_optimizer.device \"nvme\""), refusal);
  CHECK(has(refusal, " in files"));
  plan.room.host->bytes = 1000;
  CHECK_MESSAGE(has(refusal_of(plan), "no sharding and no offload would fit; the least is"),
                refusal_of(plan));
}

TEST_CASE("a run whose files the disk cannot hold is refused") {
  const Workbench bench;
  RunPlan plan = two_ranks(bench);
  plan.config.zero.offload_optimizer.device = configs::RestingPlace::kNvme;
  plan.config.zero.offload_optimizer.nvme_path = "/nvme";
  plan.outline = outline_of(plan, plan.config);
  const int64_t files = memory_need(plan).files.at("/nvme");
  CHECK(files == 2 * plan.outline.memory.states.file);
  plan.room.disks["/nvme"].free = files;
  CHECK(refusal_of(plan).empty());
  plan.room.disks["/nvme"].free = files - 1;
  const std::string refusal = refusal_of(plan);
  CHECK_MESSAGE(has(refusal, fmt::format("({} bytes) in files in /nvme, but its disk has ", files)),
                refusal);
  CHECK(has(refusal, fmt::format("free ({} bytes)", files - 1)));
  CHECK(has(refusal, "would fit:\n  zero_optimization.stage 2: "));
  plan.room.disks["/nvme"].free = 1000;
  CHECK(
      has(refusal_of(plan), "would fit:\n  zero_optimization.offload_optimizer.device \"cpu\": "));
}

TEST_CASE("two folders of files on one disk share what is free there") {
  RunPlan plan;
  plan.config.zero.offload_optimizer.nvme_path = "/disk/a";
  plan.config.zero.offload_param.nvme_path = "/disk/b";
  plan.outline.memory.states.file = 5 * kMib;
  plan.outline.memory.parameters.file = 3 * kMib;
  plan.room.disks["/disk/a"] = {.free = 8 * kMib, .device = 7};
  plan.room.disks["/disk/b"] = {.free = 8 * kMib, .device = 7};
  CHECK_NOTHROW(require_memory(plan));
  plan.room.disks["/disk/a"].free = plan.room.disks["/disk/b"].free = 8 * kMib - 1;
  CHECK_THROWS_WITH_AS(
      require_memory(plan),
      doctest::Contains("the run needs 8.00 MiB (8388608 bytes) in files in /disk/a and /disk/b, "
                        "but their disk has 8.00 MiB free (8388607 bytes)"),
      Error);
  plan.room.disks["/disk/b"].device = 8;
  CHECK_NOTHROW(require_memory(plan));
}

TEST_CASE("files that are held in memory count as host memory") {
  RunPlan plan;
  plan.config.zero.offload_optimizer.nvme_path = "/tmpfs";
  plan.outline.memory.states.file = 7 * kMib;
  plan.room.disks["/tmpfs"] = {.free = 100 * kMib, .in_memory = false};
  CHECK(memory_need(plan).host == 0);
  plan.room.disks["/tmpfs"].in_memory = true;
  CHECK(memory_need(plan).host == 7 * kMib);
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

}  // namespace zeroth::trainer
