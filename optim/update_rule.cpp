#include "optim/update_rule.h"

#include <ATen/ops/zeros.h>

#include <vector>

#include "base/error.h"
#include "optim/cpu/cpu_lamb.h"
#include "optim/cpu/cpu_rule.h"
#include "optim/device_rule.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

void UpdateRule::apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                                    std::span<const ParamGroupRange> param_groups) const {
  UpdateStep undecayed = step;
  undecayed.weight_decay = 0;
  for (const ParamGroupRange& group : param_groups) {
    const auto part = [&](const torch::Tensor& x) {
      return x.narrow(0, group.begin, group.end - group.begin);
    };
    std::vector<torch::Tensor> states;
    for (const torch::Tensor& state : chunk.states) states.push_back(part(state));
    apply({.master = part(chunk.master),
           .grad = part(chunk.grad),
           .states = states,
           .copy = chunk.copy.defined() ? part(chunk.copy) : torch::Tensor(),
           .first_element = chunk.first_element + group.begin,
           .offsets = chunk.offsets},
          group.decays ? step : undecayed);
  }
}

UpdateStep default_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

void update_parameter(const UpdateRule& rule, UpdateRule::Chunk chunk, const UpdateStep& step) {
  if (const UpdateRule::NormPass* const norms = rule.norm_pass()) {
    const ParamGroupRange whole{0, chunk.master.numel()};
    const torch::Tensor sums = at::zeros({1, 2}, chunk.master.options().dtype(torch::kDouble));
    norms->sum(chunk, step, {&whole, 1}, sums);
    chunk.ratios = norms->ratios(sums);
    chunk.grad = torch::Tensor();
  }
  rule.apply(chunk, step);
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device) {
  const bool lamb = config.kind == configs::OptimizerConfig::Kind::kLamb;
  if (lamb && device.is_cpu()) return std::make_unique<CpuLamb>(config);
  if (device.is_cpu()) return std::make_unique<CpuRule>(config);
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
