#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "device/gpu.h"

// The exit code that ctest takes for "skipped".
constexpr int kSkipped = 77;

int main(int argc, char** argv) {
#ifndef ZEROTH_HAVE_CUDA
  fmt::print("skipped: a build without the GPU library\n");
  return kSkipped;
#endif
  if (!std::filesystem::exists("/dev/nvidiactl")) {
    fmt::print("skipped: no GPU on this machine\n");
    return kSkipped;
  }
  if (zeroth::device::load_gpu().device_count() == 0) {
    fmt::print("skipped: no GPU is visible\n");
    return kSkipped;
  }
  zeroth::device::load_gpu().select(0);
  return doctest::Context(argc, argv).run();
}
