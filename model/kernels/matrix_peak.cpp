#include "model/kernels/matrix_peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/kernels/product.h"

namespace zeroth::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudgetSeconds = 0.05;
constexpr int64_t kSmallest = 256;
constexpr int64_t kLargest = 8192;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of one product a a, of several in a row so that a GPU does not wait for the host; reading
// a value waits for them on any device.
double time_products(const torch::Tensor& a, int count) {
  const Clock::time_point start = Clock::now();
  torch::Tensor last;
  for (int i = 0; i < count; ++i) last = matrix_product(a, a);
  last[0][0].item<double>();
  return seconds_since(start) / count;
}

// Loading a kernel and raising the clock take longer than the products: not counted. Begins with
// small ones, so that a slow device stops before one that takes seconds.
double measure_gpu_peak(torch::ScalarType dtype, torch::Device device) {
  constexpr int kRepeat = 4;
  double best = 0;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2) {
    const torch::Tensor a = torch::rand({size, size}, torch::dtype(dtype).device(device));
    time_products(a, 1);
    const double time = time_products(a, kRepeat);
    best = std::max(best, 2.0 * std::pow(static_cast<double>(size), 3) / time);
    if (8 * kRepeat * time > kBudgetSeconds) break;
  }
  return best;
}

}  // namespace

double measure_matrix_peak(torch::ScalarType dtype, torch::Device device) {
  const torch::NoGradGuard no_grad;
  if (!device.is_cpu()) return measure_gpu_peak(dtype, device);
  const Clock::time_point start = Clock::now();
  double best = 0;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2) {
    const torch::Tensor values = torch::rand({size}, torch::dtype(dtype).device(device));
    const torch::Tensor a = at::outer(values, values);  // drawing size^2 numbers takes longer
    const double work = 2.0 * static_cast<double>(size * size) * static_cast<double>(size);
    const double set_up = time_products(a, 1);  // maps memory, chooses a kernel
    // Half of what is left goes to this size, the other half to larger ones.
    const double until = (seconds_since(start) + kBudgetSeconds) / 2;
    double time = 0;
    do {
      time = time_products(a, 1);
      best = std::max(best, work / time);
    } while (seconds_since(start) + time < until);
    const double next = 8 * (set_up + time);
    if (seconds_since(start) + next > kBudgetSeconds) break;
  }
  return best;
}

}  // namespace zeroth::model
