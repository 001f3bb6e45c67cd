#include "zero/updater.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <array>

#include "comm/agreement.h"
#include "zero/dtype.h"

namespace zeroth::zero {
namespace {

// More than the caches of a processor hold.
constexpr int64_t kTrialElements = int64_t{1} << 24;

double host_rate(const RestPlan& rest, const configs::OptimizerConfig& optimizer,
                 const offload::Together& together) {
  const torch::NoGradGuard no_grad;
  const auto rule = optim::make_update_rule(optimizer, torch::kCPU);
  const auto full = [](torch::Dtype dtype, double value) {
    return at::full({kTrialElements}, value, torch::TensorOptions(torch::kCPU).dtype(dtype));
  };
  std::vector<torch::Tensor> states;
  for (int64_t i = 0; i < rest.arrays.states; ++i) {
    states.push_back(full(rest.arrays.state, 1e-3));
  }
  const torch::Tensor working = full(rest.working, 1);
  const optim::UpdateRule::Tile tile = {
      .master = rest.arrays.master ? full(*rest.arrays.master, 1) : working,
      .grad = full(rest.gradient, 1e-3),
      .states = states,
      .copy = rest.arrays.master ? working : torch::Tensor()};
  return offload::measure_rate(
      kTrialElements, [&] { update_whole(*rule, tile, optim::usual_step(optimizer, 1)); },
      together);
}

offload::StepRates least_over_ranks(const offload::StepRates& rates, const comm::Mesh& mesh) {
  std::array least = {rates.to_device_bytes_per_s, rates.to_host_bytes_per_s,
                      rates.host_elements_per_s};
  comm::agree(least, comm::Reduce::kMin, "rates of link and host", mesh);
  return {.to_device_bytes_per_s = least[0],
          .to_host_bytes_per_s = least[1],
          .host_elements_per_s = least[2]};
}

}  // namespace

offload::StepBytes bytes_per_element(const RestPlan& rest) {
  const int64_t arrays = rest.arrays.master_bytes() + rest.arrays.state_bytes();
  const int64_t reads = rest.arrays.read_twice ? 2 : 1;
  const int64_t parameter = width_of(rest.working);
  const int64_t resting = rest.parameters.any ? parameter : 0;
  return {
      .parameter = parameter,
      .to_device = arrays * reads + width_of(rest.gradient) + (rest.arrays.master ? 0 : resting),
      .to_host = arrays + resting};
}

offload::StepChoice measure_updater(const RestPlan& rest, const configs::Config& config,
                                    const comm::Mesh& mesh, device::HostLink& link) {
  const auto together = [&mesh] { comm::barrier(mesh); };
  offload::StepRates rates = offload::measure_link(link, mesh.device(), together);
  rates.host_elements_per_s = host_rate(rest, config.optimizer, together);
  return offload::choose_step(least_over_ranks(rates, mesh), bytes_per_element(rest));
}

// The link's tensors are gone when the host's are made.
PlaceBytes measuring_bytes(const RestPlan& rest) {
  if (rest.updater != RestPlan::Updater::kMeasured) return {};
  const int64_t there_and_back = 2 * offload::kLinkTrialBytes;
  PlaceBytes bytes{
      .device = offload::kLinkTrialBytes,
      .host = kTrialElements * (rest.arrays.master_bytes() + rest.arrays.state_bytes() +
                                width_of(rest.working) + width_of(rest.gradient))};
  if (rest.link_pinned) {
    bytes.pinned = there_and_back;
  } else {
    bytes.host = std::max(bytes.host, there_and_back);
  }
  return bytes;
}

}  // namespace zeroth::zero
