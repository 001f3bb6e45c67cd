#include "optim/adam.h"

#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/full.h>

#include <array>

#include "optim/rule_checks.h"
#include "optim/update_constants.h"

namespace zeroth::optim {

std::span<const std::string_view> Adam::state_names() const {
  static constexpr std::array<std::string_view, 2> kNames = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

void Adam::update(const Chunk& chunk, const UpdateStep& step) const {
  const std::optional<torch::Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const torch::Tensor number =
      at::full({}, kernel::bias_correction_step(config_, step.update), chunk.master.options());
  const auto fused_kernel = config_.kind == configs::OptimizerConfig::Kind::kAdamW
                                ? &at::_ops::_fused_adamw_::call
                                : &at::_ops::_fused_adam_::call;
  fused_kernel({chunk.master}, {chunk.grad}, {chunk.states[0]}, {chunk.states[1]}, {}, {number},
               step.lr, step.betas[0], step.betas[1], step.weight_decay, config_.eps,
               /*amsgrad=*/false, /*maximize=*/false, grad_scale, /*found_inf=*/{});
}

}  // namespace zeroth::optim
