#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "device/gpu.h"
#include "tests/support/child_process.h"

namespace zeroth::device::gpu_loader_test {
namespace {

constexpr const char* kOurs[] = {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                 "TORCH_NCCL_ENABLE_MONITORING", "PYTORCH_ALLOC_CONF"};
constexpr const char* kOlder = "PYTORCH_CUDA_ALLOC_CONF";

std::string value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "none" : value;
}

// Fails where the build has no GPU library, which is after the variables were set.
void look_for_library() {
  try {
    load_gpu();
  } catch (const Error&) {
  }
}

}  // namespace

TEST_CASE("before the GPU library is loaded, what it reads of the environment is set") {
  const auto result = in_child([] {
    for (const char* const name : kOurs) ::unsetenv(name);
    ::unsetenv(kOlder);
    look_for_library();
    for (const char* const name : {kOurs[0], kOurs[1], kOurs[2]})
      if (value_of(name) != "0") return 1;
    return value_of(kOurs[3]) == "expandable_segments:True" ? 0 : 2;
  });
  CHECK(result.status == 0);
}

TEST_CASE("a user's own variables for the GPU library stand") {
  const auto result = in_child([] {
    for (const char* const name : kOurs) ::setenv(name, "1", 1);
    look_for_library();
    for (const char* const name : kOurs)
      if (value_of(name) != "1") return 1;
    ::unsetenv(kOurs[3]);
    ::setenv(kOlder, "max_split_size_mb:512", 1);
    look_for_library();
    return value_of(kOurs[3]) == "none" && value_of(kOlder) == "max_split_size_mb:512" ? 0 : 2;
  });
  CHECK(result.status == 0);
}

TEST_CASE("where no GPU is visible, the driver's version, the cause and what to do are named") {
  const std::string module =
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n";
  CHECK(
      no_gpu_message({"the driver is too old", 12040, 13000}, module) ==
      "no GPU is visible, though the NVIDIA driver 550.54.15 is installed: the driver is too old. "
      "The driver supports CUDA 12.4, this build needs 13.0: update the driver, install NVIDIA's "
      "forward-compatibility package cuda-compat-13-0 (for data-center GPUs), build with a "
      "LibTorch for CUDA 12 (see docs/errors.md), or compute on the CPU with DS_ACCELERATOR=cpu");
  CHECK(
      no_gpu_message({"system not yet initialized", 13000, 13000}, "") ==
      "no GPU is visible, though the NVIDIA driver is installed: system not yet initialized; check "
      "nvidia-smi, or compute on the CPU with DS_ACCELERATOR=cpu");
  CHECK(no_gpu_message({"no driver", 0, 13000}, "") ==
        "no GPU is visible: there is no NVIDIA driver (no driver); install one, start a container "
        "with its GPUs (--gpus all), or compute on the CPU with DS_ACCELERATOR=cpu");
}

}  // namespace zeroth::device::gpu_loader_test
