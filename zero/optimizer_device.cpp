#include "zero/optimizer_device.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <array>

#include "comm/cpu_collectives.h"
#include "zero/dtype.h"

namespace zeroth::zero {
namespace {

// Exceeds the caches of a processor.
constexpr int64_t kTrialElements = int64_t{1} << 24;

double host_rate(const OffloadPlan& plan, const configs::OptimizerConfig& optimizer,
                 const offload::RankBarrier& together) {
  const torch::NoGradGuard no_grad;
  const auto rule = optim::make_update_rule(optimizer, torch::kCPU);
  const auto full = [](torch::Dtype dtype, double value) {
    return at::full({kTrialElements}, value, torch::TensorOptions(torch::kCPU).dtype(dtype));
  };
  std::vector<torch::Tensor> states;
  for (int64_t i = 0; i < plan.arrays.states; ++i) {
    states.push_back(full(plan.arrays.state, 1e-3));
  }
  const torch::Tensor working = full(plan.working, 1);
  const optim::UpdateRule::Chunk tile = {
      .master = plan.arrays.master ? full(*plan.arrays.master, 1) : working,
      .grad = full(plan.gradient, 1e-3),
      .states = states,
      .copy = plan.arrays.master ? working : torch::Tensor()};
  return offload::measure_rate(
      kTrialElements, [&] { update_parameter(*rule, tile, optim::default_step(optimizer, 1)); },
      together);
}

offload::UpdateRates slowest_over_ranks(const offload::UpdateRates& rates,
                                        const comm::DeviceMesh& mesh) {
  std::array slowest = {rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
                        rates.host_elements_per_s};
  comm::all_reduce_values(slowest, comm::ReduceOp::kMin, "rates of link and host", mesh);
  return {.to_device_bytes_per_s = slowest[0],
          .to_host_bytes_per_s = slowest[1],
          .host_elements_per_s = slowest[2]};
}

}  // namespace

offload::UpdateBytes bytes_per_element(const OffloadPlan& plan) {
  const int64_t arrays = plan.arrays.master_bytes() + plan.arrays.state_bytes();
  const int64_t reads = plan.arrays.read_twice ? 2 : 1;
  const int64_t parameter = element_bytes(plan.working);
  const int64_t offloaded_bytes = plan.parameters.any ? parameter : 0;
  return {.parameter = parameter,
          .to_device = arrays * reads + element_bytes(plan.gradient) +
                       (plan.arrays.master ? 0 : offloaded_bytes),
          .to_host = arrays + offloaded_bytes};
}

offload::OptimizerDeviceChoice measure_optimizer_device(const OffloadPlan& plan,
                                                        const configs::Config& config,
                                                        const comm::DeviceMesh& mesh,
                                                        device::HostLink& link) {
  const auto together = [&mesh] { comm::barrier(mesh); };
  offload::UpdateRates rates = offload::measure_link(link, mesh.device(), together);
  rates.host_elements_per_s = host_rate(plan, config.optimizer, together);
  return offload::choose_optimizer_device(slowest_over_ranks(rates, mesh), bytes_per_element(plan));
}

// The link's tensors are freed before the CPU's are allocated.
TierBytes calibration_bytes(const OffloadPlan& plan) {
  if (plan.optimizer_device != OffloadPlan::OptimizerDevice::kMeasured) return {};
  const int64_t there_and_back = 2 * offload::kLinkProbeBytes;
  TierBytes bytes{
      .device = offload::kLinkProbeBytes,
      .host = kTrialElements * (plan.arrays.master_bytes() + plan.arrays.state_bytes() +
                                element_bytes(plan.working) + element_bytes(plan.gradient))};
  if (plan.link_pinned) {
    bytes.pinned = there_and_back;
  } else {
    bytes.host = std::max(bytes.host, there_and_back);
  }
  return bytes;
}

}  // namespace zeroth::zero
