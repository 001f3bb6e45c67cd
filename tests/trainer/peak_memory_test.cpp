#include "trainer/report/peak_memory.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/child_process.h"

namespace zeroth::trainer {

TEST_CASE("the peak grows with touched memory and never falls") {
  // Its own: that of this process may stem from a larger test.
  const ChildResult child = in_child([] {
    const double before = own_peak_memory(torch::kCPU).rss_mib;
    if (before <= 1) return 2;
    {
      const std::vector<char> touched(64 << 20, 1);
      if (touched.back() != 1) return 3;
    }
    const PeakMemory after = own_peak_memory(torch::kCPU);
    if (after.rss_mib < before + 32) return 4;
    return after.gpu_mib == 0 ? 0 : 5;
  });
  CHECK(child.status == 0);
}

TEST_CASE("in a world of one the largest rank is this one") {
  comm::Mesh mesh(torch::kCPU, comm::make_solo_group());
  const double own = own_peak_memory(torch::kCPU).rss_mib;
  CHECK(largest_peak_memory(mesh).rss_mib == doctest::Approx(own).epsilon(0.01));
}

}  // namespace zeroth::trainer
