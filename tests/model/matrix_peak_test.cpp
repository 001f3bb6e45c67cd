#include "model/kernels/matrix_product.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

namespace zeroth::model::matrix_peak_test {
namespace {

// Of this thread: other work on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("the peak is that of a large product and found in 50 ms") {
  at::set_num_threads(1);
  for (const torch::ScalarType dtype : {torch::kFloat32, torch::kBFloat16}) {
    measure_matrix_peak(dtype, torch::kCPU);
    double start = cpu_seconds();
    const double peak = measure_matrix_peak(dtype, torch::kCPU);
    CHECK(cpu_seconds() - start < 0.06);

    const torch::Tensor a = torch::rand({512, 512}).to(dtype);
    start = cpu_seconds();
    for (int i = 0; i < 4; ++i) matrix_product(a, a);
    const double rate = 4 * 2.0 * 512 * 512 * 512 / (cpu_seconds() - start);
    CHECK(peak > rate / 4);
    CHECK(peak < rate * 4);
  }
}

// All threads on the core of this one, which gets a small part of it.
TEST_CASE("others that take the processor away do not make the peak lower") {
  at::set_num_threads(1);
  cpu_set_t before{};
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one{};
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const double alone = measure_matrix_peak(torch::kFloat32, torch::kCPU);
  std::atomic<bool> ends = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 20; ++i) {
    others.emplace_back([&ends] {
      while (!ends) continue;
    });
  }
  const double disturbed = measure_matrix_peak(torch::kFloat32, torch::kCPU);
  ends = true;
  for (std::thread& other : others) other.join();
  sched_setaffinity(0, sizeof before, &before);
  CHECK(disturbed > alone / 4);
}

}  // namespace zeroth::model::matrix_peak_test
