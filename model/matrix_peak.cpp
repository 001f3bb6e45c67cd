#include "model/matrix_peak.h"

#include <algorithm>
#include <chrono>

#include "model/product.h"

namespace zeroth::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBudgetSeconds = 0.05;
constexpr int64_t kSmallest = 256;
constexpr int64_t kLargest = 8192;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of one product [size, size] x [size, size]; reading a value waits for it on any device.
double time_product(const torch::Tensor& a, const torch::Tensor& b) {
  const Clock::time_point start = Clock::now();
  matrix_product(a, b)[0][0].item<double>();
  return seconds_since(start);
}

}  // namespace

double measure_matrix_peak(torch::ScalarType dtype, torch::Device device) {
  const Clock::time_point start = Clock::now();
  double best = 0;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2) {
    const torch::Tensor values = torch::rand({size}, torch::dtype(dtype).device(device));
    const torch::Tensor a = at::outer(values, values);  // equal bits would spare a GPU some power
    const double work = 2.0 * static_cast<double>(size * size) * static_cast<double>(size);
    const double set_up = time_product(a, a);  // maps memory, chooses a kernel
    // Half of what is left goes to this size, the other half to larger ones.
    const double until = (seconds_since(start) + kBudgetSeconds) / 2;
    double time = 0;
    do {
      time = time_product(a, a);
      best = std::max(best, work / time);
    } while (seconds_since(start) + time < until);
    const double next = 8 * (set_up + time);
    if (seconds_since(start) + next > kBudgetSeconds) break;
  }
  return best;
}

}  // namespace zeroth::model
