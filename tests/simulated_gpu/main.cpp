#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "device/gpu.h"

int main(int argc, char** argv) {
  zeroth::device::load_gpu().select(0);
  return doctest::Context(argc, argv).run();
}
