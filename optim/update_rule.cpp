#include "optim/update_rule.h"

#include <vector>

#include "base/error.h"
#include "optim/device_rule.h"
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
           .first_element = tile.first_element + stretch.begin},
          stretch.decays ? step : undecayed);
  }
}

UpdateStep usual_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device) {
  if (device.is_cpu()) return std::make_unique<HostRule>(config);
  if (DeviceRule::runs_on(device)) return std::make_unique<DeviceRule>(config);
  if (config.bf16_masters || config.bf16_states) {
    throw Error(
        "bf16.bf16_master_weights_and_grads: true needs zero_optimization.offload_optimizer.step "
        "\"cpu\", found updates on {}",
        device.str());
  }
  return make_tensor_rule(config);
}

}  // namespace zeroth::optim
