#include "engine/memory/memory_check.h"

#include <doctest/doctest.h>

#include <fmt/format.h>
#include <algorithm>

#include "base/error.h"
#include "tests/engine/split_chain.h"
#include "tests/support/chain.h"
#include "tests/support/fake_system.h"

namespace zeroth::engine::memory_check_test {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

}  // namespace

TEST_CASE("memory is told by place and kind, and what the machine's ranks need together") {
  RunMemory run;
  run.free = {
      .ranks = 2, .host = FreeMemory{4096 * kMib, "a file"}, .disks = {{"/nvme", {99 * kMib}}}};
  run.memory.parameters.device = 10 * kMib;
  run.memory.gradients.device = 5 * kMib;
  CHECK(memory_lines(run) ==
        std::vector<std::string>{
            "each rank, memory: parameters 10.0 MiB, gradients 5.00 MiB",
            "2 ranks: 30.0 MiB of host memory of 4.00 GiB left; activations not counted"});
  run.config.zero.offload_optimizer.nvme_path = "/nvme";
  run.memory.states.file = 20 * kMib;
  run.memory.file_buffers.device = 1 * kMib;
  CHECK(memory_lines(run) ==
        std::vector<std::string>{
            "each rank, memory: parameters 10.0 MiB, gradients 5.00 MiB, file buffers 1.00 MiB",
            "each rank, files: optimizer states 20.0 MiB",
            "2 ranks: 32.0 MiB of host memory of 4.00 GiB left, 40.0 MiB in /nvme of 99.0 MiB "
            "free; activations not counted"});
}

TEST_CASE("beside a GPU its memory, pinned and other host memory are told apart") {
  RunMemory run;
  run.options.device = torch::kCUDA;
  run.memory.parameters.device = 10 * kMib;
  run.memory.states.pinned = 20 * kMib;
  run.memory.loading.host = 3 * kMib;
  CHECK(memory_lines(run) ==
        std::vector<std::string>{"each rank, GPU memory: parameters 10.0 MiB",
                                 "each rank, pinned host memory: optimizer states 20.0 MiB",
                                 "each rank, host memory: 3.00 MiB while weights are loaded",
                                 "1 rank: 23.0 MiB of host memory; activations not counted"});
  CHECK_FALSE(gpu_warning(run, 10 * kMib));
  CHECK(gpu_warning(run, 9 * kMib) ==
        "the run needs 10.0 MiB on each GPU, activations not counted, but 9.00 MiB are free");
  run.with_adapters = [](const EstimateOptions&) {
    zero::MemoryPlan lora, qlora;
    lora.parameters.device = 8 * kMib;
    qlora.parameters.device = 2 * kMib;
    return std::vector<AdapterMemory>{{"--use_peft", lora}, {"--load_in_4bit", qlora}};
  };
  CHECK(gpu_warning(run, 9 * kMib)
            ->ends_with(
                "9.00 MiB are free\n  adapters over a frozen model would need, without "
                "activations:\n    "
                "--use_peft: 8.00 MiB of GPU memory\n    --load_in_4bit: 2.00 MiB of GPU memory"));
  run.options.trains = false;
  CHECK(gpu_warning(run, 9 * kMib)->ends_with("9.00 MiB are free"));
}

TEST_CASE("what timing an update takes is told where nothing later takes as much") {
  RunMemory run;
  run.options.device = torch::kCUDA;
  run.memory.parameters.device = 10 * kMib;
  run.memory.loading.host = 3 * kMib;
  run.memory.measuring = {.device = 12 * kMib, .host = 2 * kMib};
  CHECK(memory_lines(run) ==
        std::vector<std::string>{"each rank, GPU memory: parameters 10.0 MiB, 12.0 MiB while both "
                                 "optimizer devices are timed",
                                 "each rank, host memory: 3.00 MiB while weights are loaded",
                                 "1 rank: 3.00 MiB of host memory; activations not counted"});
  CHECK(gpu_warning(run, 11 * kMib));
}

TEST_CASE("two folders of files on one disk share what is free there") {
  RunMemory run;
  run.config.zero.offload_optimizer.nvme_path = "/disk/a";
  run.config.zero.offload_param.nvme_path = "/disk/b";
  run.memory.states.file = 5 * kMib;
  run.memory.parameters.file = 3 * kMib;
  run.free.disks["/disk/a"] = {.free = 8 * kMib, .device = 7};
  run.free.disks["/disk/b"] = {.free = 8 * kMib, .device = 7};
  run.estimate = [&](const configs::Config&, const EstimateOptions&) { return run.memory; };
  CHECK_NOTHROW(require_memory(run));
  run.free.disks["/disk/a"].free = run.free.disks["/disk/b"].free = 8 * kMib - 1;
  CHECK_THROWS_WITH_AS(
      require_memory(run),
      doctest::Contains("the run needs 8.00 MiB (8388608 bytes) in files in /disk/a and /disk/b, "
                        "but their disk has 8.00 MiB free (8388607 bytes)"),
      Error);
  run.free.disks["/disk/b"].device = 8;
  CHECK_NOTHROW(require_memory(run));
}

TEST_CASE("files that are held in memory count as host memory") {
  RunMemory run;
  run.config.zero.offload_optimizer.nvme_path = "/tmpfs";
  run.memory.states.file = 7 * kMib;
  run.free.disks["/tmpfs"] = {.free = 100 * kMib, .in_memory = false};
  CHECK(memory_need(run).host == 0);
  run.free.disks["/tmpfs"].in_memory = true;
  CHECK(memory_need(run).host == 7 * kMib);
}

TEST_CASE("LibTorch's own counts for each rank, its code once, and not what is there already") {
  const FakeSystem system;
  system.write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  const model::Blocks blocks = testing::make_chain({.hidden = 4});
  const auto run_on = [&](int here) {
    return run_memory(blocks, {}, {.shape = comm::MeshShape::data_parallel(4)}, here,
                      system.root());
  };
  CHECK(run_on(1).memory.runtime.device == 260 * kMib);
  CHECK(run_on(4).memory.runtime.device == 140 * kMib);
  CHECK(memory_need(run_on(4)).host > 560 * kMib);
  CHECK(memory_need(run_on(4)).host < 570 * kMib);
  CHECK(memory_lines(run_on(4))[0].ends_with(", LibTorch 140 MiB"));
  const int64_t before = run_on(2).free.host->bytes;
  system.write("proc/self/status", "RssAnon:\t   61440 kB\n");
  CHECK(run_on(2).free.host->bytes > before + 2 * 59 * kMib);
  CHECK(run_on(2).free.host->bytes <= before + 2 * 60 * kMib);
  system.write("proc/self/status", "RssAnon:\t 9999999 kB\n");
  CHECK(run_on(2).free.host->bytes == before + 2 * 100 * kMib);
}

TEST_CASE("CUDA's context counts on each GPU, and NCCL's communicators where there are several") {
  using comm::MeshDim;
  constexpr int64_t kContext = 534 * kMib, kCommunicator = 688'000'000;
  const FakeSystem system;
  const auto run_on = [&](const comm::MeshShape& shape) {
    return run_memory(make_split_chain(0, shape[MeshDim::kTp]), {},
                      {.shape = shape, .device = torch::kCUDA}, 1, system.root());
  };
  const auto bytes = [&](const comm::MeshShape& shape) {
    return run_on(shape).memory.gpu_runtime.device;
  };
  const auto data = comm::MeshShape::data_parallel(4);
  CHECK(bytes({}) == kContext);
  CHECK(bytes(data) == kContext + kCommunicator);
  CHECK(bytes(comm::MeshShape().with(MeshDim::kTp, 2)) == kContext + kCommunicator);
  CHECK(bytes(data.with(MeshDim::kTp, 2)) == kContext + 3 * kCommunicator);
  CHECK(connected_gpu_bytes({}) == kContext);
  CHECK(connected_gpu_bytes(data.with(MeshDim::kTp, 2)) == kContext + kCommunicator);
  CHECK(memory_lines(run_on({}))[0].ends_with(", CUDA and NCCL 534 MiB"));
  const auto on_cpu = run_memory(make_split_chain(0, 1), {}, {.shape = data}, 1, system.root());
  CHECK(on_cpu.memory.gpu_runtime.total() == 0);
}

TEST_CASE("values that blocks hold count while weights are loaded, and are left to training") {
  const FakeSystem system;
  const model::Blocks blocks = testing::make_chain({.hidden = 40, .tied = true});
  int64_t held = 0;
  for (const auto& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      held += static_cast<int64_t>(parameter.nbytes());
    }
  }
  held -= static_cast<int64_t>(blocks[0]->parameters()[0].nbytes());  // the head has it too
  const auto run_beside = [&](const configs::Config& config, int64_t kib, int here = 2) {
    system.write("proc/meminfo", fmt::format("MemAvailable: {} kB\n", kib));
    return run_memory(blocks, config, {.shape = comm::MeshShape::data_parallel(2)}, here,
                      system.root());
  };
  configs::Config config;  // AdamW at stage 0: far more than what is held
  const zero::MemoryPlan training = plan_memory(zero::plan_units(blocks, 2), config, {});
  constexpr int64_t kCode = 160 * kMib;
  const int64_t each = training.peak().device - held + 100 * kMib;
  const int64_t enough = (2 * each + kCode + 1023) / 1024;
  CHECK_NOTHROW(require_memory(run_beside(config, enough)));
  CHECK_THROWS_AS(require_memory(run_beside(config, enough - 1)), Error);
  // With the other rank on another machine.
  CHECK_NOTHROW(require_memory(run_beside(config, (each + kCode + 1023) / 1024, /*here=*/1)));
  CHECK(run_beside(config, enough).memory.held == zero::TierBytes{.device = held});
}

TEST_CASE("a machine needs what the stages of its ranks hold") {
  const FakeSystem system;
  configs::Config config;
  config.pipeline = {.stages = 2, .partition = "uniform"};
  const auto shape = comm::MeshShape().with(comm::MeshDim::kPp, 2).with(comm::MeshDim::kDp, 2);
  const auto run_here = [&](int here) {
    return run_memory(testing::make_chain({.hidden = 400}), config, {.shape = shape}, here,
                      system.root());
  };
  const auto peak_of = [](const RunMemory& run, int pp_rank) {
    EstimateOptions options = run.options;
    options.pp_rank = pp_rank;
    return run.estimate(run.config, options).peak().device;
  };
  const RunMemory all = run_here(4), half = run_here(2);
  REQUIRE(peak_of(all, 0) != peak_of(all, 1));
  CHECK(memory_need(all).host == 2 * peak_of(all, 0) + 2 * peak_of(all, 1));
  CHECK(memory_need(half).host == 2 * std::max(peak_of(half, 0), peak_of(half, 1)));
  CHECK(all.memory.peak().device == std::max(peak_of(all, 0), peak_of(all, 1)));
}

}  // namespace zeroth::engine::memory_check_test
