#include "offload/step_choice.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace zeroth::offload {
namespace {

constexpr double kElements = 1e9;
constexpr int kCalls = 3;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_of(const std::function<void()>& work) {
  work();
  double best = seconds_of(work);
  for (int call = 1; call < kCalls; ++call) best = std::min(best, seconds_of(work));
  return std::max(best, 1e-9);
}

}  // namespace

StepChoice choose_step(const StepRates& rates, const StepBytes& bytes) {
  ZEROTH_CHECK(rates.to_device_bytes_per_s > 0 && rates.to_host_bytes_per_s > 0 &&
                   rates.host_elements_per_s > 0,
               "rates of {}, {} and {}", rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
               rates.host_elements_per_s);
  const auto there = [&](int64_t moved) {
    return kElements * static_cast<double>(moved) / rates.to_device_bytes_per_s;
  };
  const auto back = [&](int64_t moved) {
    return kElements * static_cast<double>(moved) / rates.to_host_bytes_per_s;
  };
  StepChoice choice;
  choice.host_s = std::max(kElements / rates.host_elements_per_s, there(bytes.parameter));
  choice.device_s = std::max(there(bytes.states + bytes.gradient), back(bytes.states));
  choice.on_device = choice.device_s < choice.host_s;
  choice.why = fmt::format(
      "updates on the {}: {:.2f} s per 1B elements on the host ({:.2f}B elements/s), {:.2f} s "
      "through the GPU (link {:.1f} GB/s there, {:.1f} GB/s back)",
      choice.on_device ? "GPU" : "host", choice.host_s, rates.host_elements_per_s / 1e9,
      choice.device_s, rates.to_device_bytes_per_s / 1e9, rates.to_host_bytes_per_s / 1e9);
  return choice;
}

StepRates measure_link(HostLink& link, torch::Device device, int64_t bytes) {
  const torch::Tensor here = link.memory.zeros(bytes, torch::kByte);
  const torch::Tensor landed = link.memory.zeros(bytes, torch::kByte);
  const torch::Tensor there =
      torch::empty({bytes}, torch::TensorOptions(device).dtype(torch::kByte));
  CopyStream& copies = *link.copies;
  const Point usable = copies.now();
  const auto amount = static_cast<double>(bytes);
  StepRates rates;
  rates.to_device_bytes_per_s =
      amount / best_of([&] { copies.wait(copies.copy(there, here, {usable})); });
  rates.to_host_bytes_per_s =
      amount / best_of([&] { copies.wait(copies.copy(landed, there, {usable})); });
  return rates;
}

double measure_rate(int64_t elements, const std::function<void()>& update) {
  return static_cast<double>(elements) / best_of(update);
}

}  // namespace zeroth::offload
