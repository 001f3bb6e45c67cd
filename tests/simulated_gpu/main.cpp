#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "device/gpu.h"

int main(int argc, char** argv) {
  setenv("ZEROTH_SIMULATED_GPUS", "4", /*overwrite=*/0);
  zeroth::device::load_gpu().select(0);
  return doctest::Context(argc, argv).run();
}
