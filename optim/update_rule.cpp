#include "optim/update_rule.h"

#include <ATen/ops/zeros.h>

#include <vector>

#include "base/error.h"
#include "optim/device_rule.h"
#include "optim/host_lamb.h"
#include "optim/host_rule.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

void UpdateRule::apply_stretches(const Tile& tile, const UpdateStep& step,
                                 std::span<const Stretch> stretches) const {
  UpdateStep undecayed = step;
  undecayed.weight_decay = 0;
  for (const Stretch& stretch : stretches) {
    const auto part = [&](const torch::Tensor& x) {
      return x.narrow(0, stretch.begin, stretch.end - stretch.begin);
    };
    std::vector<torch::Tensor> states;
    for (const torch::Tensor& state : tile.states) states.push_back(part(state));
    apply({.master = part(tile.master),
           .grad = part(tile.grad),
           .states = states,
           .copy = tile.copy.defined() ? part(tile.copy) : torch::Tensor(),
           .first_element = tile.first_element + stretch.begin,
           .numbers = tile.numbers},
          stretch.decays ? step : undecayed);
  }
}

UpdateStep usual_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

void update_whole(const UpdateRule& rule, UpdateRule::Tile tile, const UpdateStep& step) {
  if (const UpdateRule::NormPass* const norms = rule.norm_pass()) {
    const Stretch whole{0, tile.master.numel()};
    const torch::Tensor sums = at::zeros({1, 2}, tile.master.options().dtype(torch::kDouble));
    norms->sum(tile, step, {&whole, 1}, sums);
    tile.ratios = norms->ratios(sums);
    tile.grad = torch::Tensor();
  }
  rule.apply(tile, step);
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device) {
  const bool lamb = config.kind == configs::OptimizerConfig::Kind::kLamb;
  if (lamb && device.is_cpu()) return std::make_unique<HostLamb>(config);
  if (device.is_cpu()) return std::make_unique<HostRule>(config);
  if (!lamb && DeviceRule::runs_on(device)) return std::make_unique<DeviceRule>(config);
  if (config.bf16_masters || config.bf16_states) {
    throw Error(
        "bf16.bf16_master_weights_and_grads: true needs zero_optimization.offload_optimizer.step "
        "\"cpu\", found updates on {}",
        device.str());
  }
  return make_tensor_rule(config);
}

}  // namespace zeroth::optim
