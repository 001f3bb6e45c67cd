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

}  // namespace

TEST_CASE("what was freed is used again without asking the kernel") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("a sanitizer brings a heap of its own: not tested");
  return;
#endif
  faults();
  CHECK(faults() > 1000);  // the default gives large blocks back
  retain_freed_memory();
  faults();
  CHECK(faults() < 100);
}

}  // namespace zeroth::heap_test
