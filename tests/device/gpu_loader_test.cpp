#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "device/gpu.h"
#include "tests/support/child_process.h"

namespace zeroth::device {
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

}  // namespace zeroth::device
