#include "offload/optimizer_device_choice.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"

namespace zeroth::offload {
namespace {

constexpr double kReferenceElements = 1e9;
constexpr size_t kNumSamples = 5;

double time_call(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the median, not the minimum: that may be a call during which other ranks happened to
// wait.
double median_seconds(const std::function<void()>& work, const RankBarrier& barrier) {
  work();
  std::array<double, kNumSamples> seconds{};
  for (double& call : seconds) {
    barrier();
    call = time_call(work);
  }
  std::ranges::nth_element(seconds, seconds.begin() + kNumSamples / 2);
  return std::max(seconds[kNumSamples / 2], 1e-9);
}

}  // namespace

OptimizerDeviceChoice choose_optimizer_device(const UpdateRates& rates, const UpdateBytes& bytes) {
  ZEROTH_CHECK(rates.to_device_bytes_per_s > 0 && rates.to_host_bytes_per_s > 0 &&
                   rates.host_elements_per_s > 0,
               "rates of {}, {} and {}", rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
               rates.host_elements_per_s);
  const auto there = [&](int64_t moved) {
    return kReferenceElements * static_cast<double>(moved) / rates.to_device_bytes_per_s;
  };
  const auto back = [&](int64_t moved) {
    return kReferenceElements * static_cast<double>(moved) / rates.to_host_bytes_per_s;
  };
  OptimizerDeviceChoice choice;
  choice.host_s = std::max(kReferenceElements / rates.host_elements_per_s, there(bytes.parameter));
  choice.device_s = std::max(there(bytes.to_device), back(bytes.to_host));
  choice.on_device = choice.device_s < choice.host_s;
  choice.why = fmt::format(
      "updates on the {}: {:.2f} s per 1B elements on the host during the next forward ({:.2f}B "
      "elements/s), {:.2f} s on the GPU between its blocks (link {:.1f} GB/s to the GPU, {:.1f} "
      "GB/s back)",
      choice.on_device ? "GPU" : "host", choice.host_s, rates.host_elements_per_s / 1e9,
      choice.device_s, rates.to_device_bytes_per_s / 1e9, rates.to_host_bytes_per_s / 1e9);
  return choice;
}

UpdateRates measure_link(device::HostLink& link, torch::Device device, const RankBarrier& barrier,
                         int64_t bytes) {
  const torch::Tensor here = link.memory.zeros(bytes, torch::kByte);
  const torch::Tensor landed = link.memory.zeros(bytes, torch::kByte);
  const torch::Tensor there =
      torch::empty({bytes}, torch::TensorOptions(device).dtype(torch::kByte));
  device::CopyStream& copies = *link.copies;
  const device::StreamEvent usable = copies.record_event();
  const auto amount = static_cast<double>(bytes);
  UpdateRates rates;
  rates.to_device_bytes_per_s =
      amount / median_seconds([&] { copies.wait(copies.copy(there, here, {usable})); }, barrier);
  rates.to_host_bytes_per_s =
      amount / median_seconds([&] { copies.wait(copies.copy(landed, there, {usable})); }, barrier);
  return rates;
}

double measure_rate(int64_t elements, const std::function<void()>& update,
                    const RankBarrier& barrier) {
  return static_cast<double>(elements) / median_seconds(update, barrier);
}

}  // namespace zeroth::offload
