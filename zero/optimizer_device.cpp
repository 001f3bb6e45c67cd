#include "zero/optimizer_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/machine/timer.h"
#include "comm/cpu_collectives.h"
#include "optim/update_rule.h"
#include "zero/dtype.h"

namespace zeroth::zero {
namespace {

// Exceeds the caches of a processor.
constexpr int64_t kTrialElements = int64_t{1} << 24;

constexpr double kReferenceElements = 1e9;
constexpr size_t kNumSamples = 5;

// Returns the median, not the minimum: that may be a call during which other ranks happened to
// wait.
double median_seconds(const std::function<void()>& work, const RankBarrier& barrier) {
  work();
  std::array<double, kNumSamples> seconds{};
  for (double& call : seconds) {
    barrier();
    const Timer timer;
    work();
    call = timer.seconds();
  }
  std::ranges::nth_element(seconds, seconds.begin() + kNumSamples / 2);
  return std::max(seconds[kNumSamples / 2], 1e-9);
}

double host_rate(const OffloadPlan& plan, const configs::OptimizerConfig& optimizer,
                 const RankBarrier& together) {
  const torch::NoGradGuard no_grad;
  const auto rule = optim::make_update_rule(optimizer, torch::kCPU);
  const auto full = [](torch::Dtype dtype, double value, int64_t entries = kTrialElements) {
    return at::full({entries}, value, torch::TensorOptions(torch::kCPU).dtype(dtype));
  };
  std::vector<torch::Tensor> states, maxima;
  for (const auto& state : plan.arrays.states) {
    const bool elementwise = state.block == 1;
    (elementwise ? states : maxima)
        .push_back(full(state.dtype, 1e-3, state.entries(kTrialElements)));
  }
  const torch::Tensor working = full(plan.working, 1);
  const optim::UpdateRule::Chunk tile = {
      .master = plan.arrays.master ? full(*plan.arrays.master, 1) : working,
      .grad = full(plan.gradient, 1e-3),
      .states = states,
      .copy = plan.arrays.master ? working : torch::Tensor(),
      .maxima = maxima};
  return measure_rate(
      kTrialElements, [&] { update_parameter(*rule, tile, optim::default_step(optimizer, 1)); },
      together);
}

}  // namespace

OptimizerDeviceChoice choose_optimizer_device(const UpdateRates& rates, const UpdateBytes& bytes) {
  ZEROTH_CHECK(rates.to_device_bytes_per_s > 0 && rates.to_host_bytes_per_s > 0 &&
                   rates.host_elements_per_s > 0,
               "rates of {}, {} and {}", rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
               rates.host_elements_per_s);
  const auto seconds = [](int64_t moved, double bytes_per_s) {
    return kReferenceElements * static_cast<double>(moved) / bytes_per_s;
  };
  OptimizerDeviceChoice choice;
  choice.host_s = std::max(kReferenceElements / rates.host_elements_per_s,
                           seconds(bytes.parameter, rates.to_device_bytes_per_s));
  choice.device_s = std::max(seconds(bytes.to_device, rates.to_device_bytes_per_s),
                             seconds(bytes.to_host, rates.to_host_bytes_per_s));
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

UpdateBytes bytes_per_element(const OffloadPlan& plan) {
  // To whole bytes: the maxima of coded states are a few per cent of one.
  const int64_t arrays =
      plan.arrays.master_bytes() + plan.arrays.state_bytes(kTrialElements) / kTrialElements;
  const int64_t reads = plan.arrays.read_twice ? 2 : 1;
  const int64_t parameter = element_bytes(plan.working);
  const int64_t offloaded_bytes = plan.parameters.any ? parameter : 0;
  return {.parameter = parameter,
          .to_device = arrays * reads + element_bytes(plan.gradient) +
                       (plan.arrays.master ? 0 : offloaded_bytes),
          .to_host = arrays + offloaded_bytes};
}

OptimizerDeviceChoice measure_optimizer_device(const OffloadPlan& plan,
                                               const configs::Config& config,
                                               const comm::DeviceMesh& mesh,
                                               device::HostLink& link) {
  const auto together = [&mesh] { comm::barrier(mesh); };
  const UpdateRates own = measure_link(link, mesh.device(), together);
  std::array slowest = {own.to_device_bytes_per_s, own.to_host_bytes_per_s,
                        host_rate(plan, config.optimizer, together)};
  comm::all_reduce_values(slowest, comm::ReduceOp::kMin, "rates of link and host", mesh);
  return choose_optimizer_device({.to_device_bytes_per_s = slowest[0],
                                  .to_host_bytes_per_s = slowest[1],
                                  .host_elements_per_s = slowest[2]},
                                 bytes_per_element(plan));
}

// The link's tensors are freed before the CPU's are allocated.
TierBytes calibration_bytes(const OffloadPlan& plan) {
  if (plan.optimizer_device != OffloadPlan::OptimizerDevice::kAuto) return {};
  const int64_t there_and_back = 2 * kLinkProbeBytes;
  TierBytes bytes{
      .device = kLinkProbeBytes,
      .host = plan.arrays.state_bytes(kTrialElements) +
              kTrialElements * (plan.arrays.master_bytes() + element_bytes(plan.working) +
                                element_bytes(plan.gradient))};
  if (plan.link_pinned) {
    bytes.pinned = there_and_back;
  } else {
    bytes.host = std::max(bytes.host, there_and_back);
  }
  return bytes;
}

}  // namespace zeroth::zero
