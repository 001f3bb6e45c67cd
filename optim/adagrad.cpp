#include "optim/adagrad.h"

#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/full.h>

#include <array>

#include "optim/rule_checks.h"

namespace zeroth::optim {

std::span<const std::string_view> Adagrad::state_names() const {
  static constexpr std::array<std::string_view, 1> kNames = {"sum"};
  return kNames;
}

void Adagrad::update(const Chunk& chunk, const UpdateStep& step) const {
  const std::optional<torch::Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const torch::Tensor number = at::full({}, step.update, chunk.master.options());
  at::_ops::_fused_adagrad_::call({chunk.master}, {chunk.grad}, {chunk.states[0]}, {number},
                                  step.lr, config_.lr_decay, step.weight_decay, config_.eps,
                                  /*maximize=*/false, grad_scale, /*found_inf=*/{});
}

}  // namespace zeroth::optim
