#include "model/kernels/matrix_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

namespace zeroth::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudgetSeconds = 0.05;  // of a GPU's time, or of a processor's
constexpr double kMaxWallSeconds = 0.5;  // of wall time, if other work uses the processor
constexpr int64_t kMinSide = 256;
constexpr int64_t kMaxSide = 8192;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double clock_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A CpuTimer measures the time for which the threads of a product have computed, by the processor's
// clock: it excludes the work of other processes.
class CpuTimer {
 public:
  // Returns the seconds so far. A thread that sleeps until the other threads of its product are
  // done has computed less than they have; then the mean of all threads counts.
  double seconds() const {
    const double thread_seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - thread_start_;
    const int threads = at::get_num_threads();
    if (threads == 1) return thread_seconds;
    return std::max(thread_seconds,
                    (clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - process_start_) / threads);
  }

 private:
  double thread_start_ = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
  double process_start_ = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
};

// Returns the seconds of one product a a on the CPU.
double time_product(const torch::Tensor& a) {
  const CpuTimer time;
  matrix_product(a, a);
  return time.seconds();
}

// Returns the seconds of one product a a on a GPU. It queues several in a row, so that the GPU does
// not wait for the CPU; reading a value waits for all of them.
double time_products(const torch::Tensor& a, int count) {
  const Clock::time_point start = Clock::now();
  torch::Tensor last;
  for (int i = 0; i < count; ++i) last = matrix_product(a, a);
  last[0][0].item<double>();
  return seconds_since(start) / count;
}

// Returns a GPU's peak. Loading a kernel and raising the clock take longer than the products, so
// they are not counted. It begins with small products, so that a slow device stops before one that
// takes seconds.
double measure_gpu_peak(torch::ScalarType dtype, torch::Device device) {
  constexpr int kRepeat = 4;
  double best = 0;
  for (int64_t size = kMinSide; size <= kMaxSide; size *= 2) {
    const torch::Tensor a = torch::rand({size, size}, torch::dtype(dtype).device(device));
    time_products(a, 1);
    const double time = time_products(a, kRepeat);
    best = std::max(best, 2.0 * std::pow(static_cast<double>(size), 3) / time);
    if (8 * kRepeat * time > kBudgetSeconds) break;
  }
  return best;
}

double measure_cpu_peak(torch::ScalarType dtype) {
  const Clock::time_point start = Clock::now();
  const CpuTimer spent;
  double best = 0;
  for (int64_t size = kMinSide; size <= kMaxSide; size *= 2) {
    const torch::Tensor values = torch::rand({size}, torch::dtype(dtype));
    const torch::Tensor a = at::outer(values, values);  // drawing size^2 numbers takes longer
    const double work = 2.0 * static_cast<double>(size * size) * static_cast<double>(size);
    time_product(a);  // maps memory, chooses a kernel
    // Half of the remaining time goes to this size, the other half to larger ones.
    const double until = (spent.seconds() + kBudgetSeconds) / 2;
    double time = 0;
    do {
      time = time_product(a);
      if (time > 0) best = std::max(best, work / time);
    } while (spent.seconds() + time < until && seconds_since(start) < kMaxWallSeconds);
    const double next = 2 * 8 * time;
    if (spent.seconds() + next > kBudgetSeconds || seconds_since(start) > kMaxWallSeconds) break;
  }
  return best;
}

}  // namespace

double measure_matrix_peak(torch::ScalarType dtype, torch::Device device) {
  const torch::NoGradGuard no_grad;
  return device.is_cpu() ? measure_cpu_peak(dtype) : measure_gpu_peak(dtype, device);
}

}  // namespace zeroth::model
