#include "base/machine/host_limits.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

namespace zeroth::heap_test {
namespace {

constexpr size_t kBytes = 100 << 20;

// Pages that the kernel had to provide for writing kBytes of fresh memory.
long faults() {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  void* const memory = std::malloc(kBytes);
  std::memset(memory, 1, kBytes);
  getrusage(RUSAGE_SELF, &after);
  std::free(memory);
  return after.ru_minflt - before.ru_minflt;
}

// A sanitizer has a heap of its own.
bool heap_is_replaced() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("a sanitizer brings a heap of its own: not tested");
  return true;
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("what was freed is used again without asking the kernel") {
  if (heap_is_replaced()) return;
  faults();
  CHECK(faults() > 1000);  // the default gives large blocks back
  retain_freed_memory();
  faults();
  CHECK(faults() < 100);
}

TEST_CASE("freed memory below a live block is released to the kernel on request") {
  if (heap_is_replaced()) return;
  retain_freed_memory();
  constexpr int64_t kFreed = 400 << 20;
  void* const freed = std::malloc(kFreed);
  void* const live = std::malloc(8 << 20);  // larger than the gaps that there are
  REQUIRE(live > freed);
  std::memset(freed, 1, kFreed);
  const int64_t used = process_memory().resident;
  std::free(freed);
  CHECK(process_memory().resident > used - kFreed / 4);
  release_freed_memory();
  CHECK(process_memory().resident < used - kFreed * 3 / 4);
  std::free(live);
}

}  // namespace zeroth::heap_test
