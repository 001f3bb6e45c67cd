#include "optim/update_rule.h"

#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/machine/parallel.h"
#include "optim/lamb.h"
#include "optim/update_constants.h"

namespace zeroth::optim {
namespace {

using configs::OptimizerConfig;
using torch::Tensor;
using Chunk = UpdateRule::Chunk;

// Adam equals torch.optim.Adam / AdamW with fused=True: bias-corrected moments, eps outside the
// square root, weight decay decoupled (kAdamW: master *= 1 - lr * decay) or added to the gradient
// (kAdam).
void update_adam(const OptimizerConfig& config, const Chunk& chunk, const UpdateStep& step) {
  const std::optional<Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const Tensor number =
      at::full({}, kernel::bias_correction_step(config, step.update), chunk.master.options());
  const auto fused_kernel = kernel::optimizer_traits(config).decouples_decay
                                ? &at::_ops::_fused_adamw_::call
                                : &at::_ops::_fused_adam_::call;
  fused_kernel({chunk.master}, {chunk.grad}, {chunk.states[0]}, {chunk.states[1]}, {}, {number},
               step.lr, step.betas[0], step.betas[1], step.weight_decay, config.eps,
               /*amsgrad=*/false, /*maximize=*/false, grad_scale, /*found_inf=*/{});
}

// Adagrad equals torch.optim.Adagrad: weight decay is added to the gradient, the rate of update n
// (from 1) is lr / (1 + (n - 1) * lr_decay), eps is added to the root of the sum of squares.
void update_adagrad(const OptimizerConfig& config, const Chunk& chunk, const UpdateStep& step) {
  const std::optional<Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const Tensor number = at::full({}, step.update, chunk.master.options());
  at::_ops::_fused_adagrad_::call({chunk.master}, {chunk.grad}, {chunk.states[0]}, {number},
                                  step.lr, config.lr_decay, step.weight_decay, config.eps,
                                  /*maximize=*/false, grad_scale, /*found_inf=*/{});
}

// SGD equals torch.optim.SGD: weight decay is added to the gradient; with momentum buffer =
// momentum * buffer + (1 - dampening) * gradient, where update 1 sets buffer = gradient; Nesterov
// steps along gradient + momentum * buffer. Without momentum it keeps no state.
void update_sgd(const OptimizerConfig& config, const Chunk& chunk, const UpdateStep& step) {
  const std::optional<Tensor> grad_scale = fold_factor(chunk.grad, step.grad_factor);
  const std::vector<Tensor> buffers(chunk.states.begin(), chunk.states.end());
  at::_ops::_fused_sgd_::call({chunk.master}, {chunk.grad}, buffers, step.weight_decay,
                              config.momentum, step.lr, config.dampening, config.nesterov,
                              /*maximize=*/false, /*is_first_step=*/step.update == 1, grad_scale,
                              /*found_inf=*/{});
}

// Elements that pass through all operations of Lion's formula while the cache holds them.
constexpr int64_t kBlockElements = 16384;
static_assert(kBlockElements % UpdateRule::kChunkAlignment == 0);

void update_lion_block(Tensor master, const Tensor& grad, Tensor momentum, const UpdateStep& step) {
  const torch::NoGradGuard no_grad;  // the threads of a parallel loop do not inherit it
  const auto [beta1, beta2] = step.betas;
  Tensor direction = at::mul(momentum, beta1).add_(grad, (1 - beta1) * step.grad_factor);
  at::copysign_out(direction, at::full({}, step.lr, master.options()), direction);
  if (step.weight_decay != 0) master.mul_(1 - step.lr * step.weight_decay);
  master.sub_(direction);
  momentum.mul_(beta2).add_(grad, (1 - beta2) * step.grad_factor);
}

// Lion ("Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675) is DeepSpeed's formula
// (csrc/lion): with gradient g, momentum m and update
//   c = beta1 * m + (1 - beta1) * g
//   master = master * (1 - lr * weight_decay) - copysign(lr, c)
//   m = beta2 * m + (1 - beta2) * g
// An element whose c is +0, such as one that never had a gradient, moves by -lr, as on DeepSpeed's
// CPU.
void update_lion(const OptimizerConfig&, const Chunk& chunk, const UpdateStep& step) {
  const int64_t numel = chunk.master.numel();
  const int64_t block_size = chunk.master.is_cpu() ? kBlockElements : std::max<int64_t>(numel, 1);
  parallel_for((numel + block_size - 1) / block_size, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i * block_size;
      const auto block = [&](const Tensor& x) {
        return x.narrow(0, begin, std::min(block_size, numel - begin));
      };
      update_lion_block(block(chunk.master), block(chunk.grad), block(chunk.states[0]), step);
    }
  });
}

// In the order of kernel::Formula.
constexpr TensorRule::UpdateFunction* kUpdates[] = {update_adam, update_lion, update_adagrad,
                                                    update_sgd, update_sgd};
static_assert(std::size(kUpdates) == kernel::kNumFormulas);

}  // namespace

TensorRule::TensorRule(const OptimizerConfig& config)
    : UpdateRule(config), update_(kUpdates[kernel::select_formula(config)]) {}

void TensorRule::apply(const Chunk& chunk, const UpdateStep& step) const {
  check_arguments(chunk, step);
  update_(config(), {chunk.master, chunk.grad.to(torch::kFloat), chunk.states, {}}, step);
  if (chunk.copy.defined()) Tensor(chunk.copy).copy_(chunk.master);
}

std::unique_ptr<UpdateRule> make_tensor_rule(const OptimizerConfig& config) {
  if (config.kind == OptimizerConfig::Kind::kLamb) return std::make_unique<Lamb>(config);
  return std::make_unique<TensorRule>(config);
}

std::optional<Tensor> fold_factor(const Tensor& grad, double grad_factor) {
  if (grad_factor == 1) return std::nullopt;
  const float divisor = static_cast<float>(1 / grad_factor);
  if (std::isnormal(divisor)) return at::full({}, divisor, grad.options());
  grad.mul_(grad_factor);
  return std::nullopt;
}

}  // namespace zeroth::optim
