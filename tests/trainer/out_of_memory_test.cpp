#include "trainer/failure.h"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <torch/types.h>

#include <new>

#include "device/host_link.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::out_of_memory_test {
namespace {

template <typename Action>
std::optional<FailedAllocation> failure_of(Action action) {
  try {
    action();
  } catch (...) {
    return failed_allocation(std::current_exception());
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a GPU's allocator says what was asked for and what is free") {
  const auto failed = failure_of([] {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0 has a total capacity "
                     "of 139.81 GiB of which 512.00 KiB is free. Including non-PyTorch memory ...");
  });
  REQUIRE(failed);
  CHECK(failed->on_gpu);
  CHECK(failed->requested == 20 * 1048576 + 524288);
  CHECK(failed->free == 512 * 1024);
}

TEST_CASE("the CPU's allocator is understood with its real message") {
  const auto failed = failure_of([] { torch::empty({int64_t{1} << 60}, torch::kUInt8); });
  REQUIRE(failed);
  CHECK_FALSE(failed->on_gpu);
  CHECK(failed->requested == int64_t{1} << 60);
  CHECK(failed->free ==
        doctest::Approx(static_cast<double>(free_host_memory().bytes)).epsilon(0.5));
}

TEST_CASE("host memory for offloaded state that is not given is known with its size") {
  const auto failed =
      failure_of([] { device::HostMemory().zeros(int64_t{1} << 60, torch::kByte); });
  REQUIRE(failed);
  CHECK_FALSE(failed->on_gpu);
  CHECK(failed->requested == int64_t{1} << 60);
  CHECK(*failed->free > 0);
}

TEST_CASE("an allocation of the C++ library has no size") {
  const auto failed = failure_of([] { throw std::bad_alloc(); });
  REQUIRE(failed);
  CHECK_FALSE(failed->requested);
  CHECK(*failed->free > 0);
}

TEST_CASE("another error is none of memory") {
  CHECK_FALSE(failure_of([] { TORCH_CHECK(false, "sizes differ"); }));
  CHECK_FALSE(failure_of([] { throw 3; }));
}

TEST_CASE("a rank that reaches its limit says where, how much, and what needs less") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("a sanitizer reserves more addresses than the limit of this test: not tested");
  return;
#endif
  const Workbench bench;
  const auto result = bench.shell(
      "ulimit -v 1500000; \"$FINETUNE\" --model model --data train.bin --seq-len 16 --steps 1 "
      "--micro-batch 20000");
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "error: out of host memory in forward of block layers."),
                result.err);
  CHECK(has(result.err, " bytes) requested, "));
  CHECK(has(result.err,
            " free (ulimit -v: 1.43 GiB); to use less memory:\n  --micro-batch 10000 with "
            "--accumulation 2 "));
  CHECK(has(result.err, "\n  --gradient-checkpointing: "));
  CHECK(has(result.err, "\n  --bf16: "));
}

TEST_CASE("a stage of a pipeline that reaches its limit is named with its block") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("a sanitizer reserves more addresses than the limit of this test: not tested");
  return;
#endif
  const Workbench bench;
  // By parameters, so that measured times do not decide which blocks the limited stage holds.
  bench.write("ds.json", R"({"pipeline": {"stages": 2, "partition": "parameters"}})");
  bench.write("limited", "[ $RANK = 1 ] && ulimit -v 1500000; exec \"$FINETUNE\" \"$@\"");
  const auto result = bench.shell(
      "DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 \"${FINETUNE%/*}/zeroth\" --num_gpus 2 sh limited "
      "--model model --data train.bin --seq-len 16 --steps 1 "
      "--micro-batch 30000 --accumulation 2 --deepspeed ds.json");
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "finetune: rank 1: error: out of host memory in "), result.err);
  CHECK_MESSAGE(has(result.err, "ward of block "), result.err);
  CHECK_MESSAGE(has(result.err, " (stage 1): "), result.err);
  CHECK(has(result.err, "zeroth: rank 1 ended with exit code 1"));
}

TEST_CASE("the message names place, bytes and remedies") {
  CHECK(out_of_memory_message({.on_gpu = true, .requested = 1048576, .free = 1024},
                              "backward of block layers.3", {"a", "b"}) ==
        "out of GPU memory in backward of block layers.3: 1.00 MiB (1048576 bytes) requested, 1.00 "
        "KiB (1024 bytes) free; to use less memory:\n  a\n  b");
  CHECK(has(out_of_memory_message({.limit = "ulimit -v: 1.00 GiB"}, "", {}),
            " free (ulimit -v: 1.00 GiB)"));
  CHECK(has(out_of_memory_message({}, "", {}), "out of host memory: an unknown number requested"));
}

}  // namespace zeroth::trainer::out_of_memory_test
