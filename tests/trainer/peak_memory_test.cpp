#include "trainer/peak_memory.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::trainer {

TEST_CASE("the peak grows with touched memory and never falls") {
  const double before = own_peak_memory(torch::kCPU).rss_mib;
  CHECK(before > 1);
  {
    const std::vector<char> touched(64 << 20, 1);
    CHECK(touched.back() == 1);
  }
  const PeakMemory after = own_peak_memory(torch::kCPU);
  CHECK(after.rss_mib >= before + 32);
  CHECK(after.gpu_mib == 0);
}

TEST_CASE("in a world of one the largest rank is this one") {
  comm::Mesh mesh(torch::kCPU, comm::make_solo_group());
  const double own = own_peak_memory(torch::kCPU).rss_mib;
  CHECK(largest_peak_memory(mesh).rss_mib == doctest::Approx(own).epsilon(0.01));
}

}  // namespace zeroth::trainer
