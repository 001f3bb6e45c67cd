#include "optim/sgd.h"

#include <ATen/ops/_fused_sgd_ops.h>

#include <array>
#include <vector>

#include "optim/rule_checks.h"

namespace zeroth::optim {

std::span<const std::string_view> Sgd::state_names() const {
  static constexpr std::array<std::string_view, 1> kNames = {"momentum_buffer"};
  return config_.momentum == 0 ? std::span<const std::string_view>() : kNames;
}

void Sgd::update(const Chunk& chunk, const UpdateStep& step) const {
  const std::optional<torch::Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const std::vector<torch::Tensor> buffers(chunk.states.begin(), chunk.states.end());
  at::_ops::_fused_sgd_::call({chunk.master}, {chunk.grad}, buffers, step.weight_decay,
                              config_.momentum, step.lr, config_.dampening, config_.nesterov,
                              /*maximize=*/false, /*is_first_step=*/step.update == 1, grad_scale,
                              /*found_inf=*/{});
}

}  // namespace zeroth::optim
