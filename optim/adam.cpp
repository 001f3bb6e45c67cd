#include "optim/adam.h"

#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/full.h>

#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace zeroth::optim {

namespace {

constexpr std::array<std::string_view, 2> kStateNames = {"exp_avg", "exp_avg_sq"};

void check_tensor(const torch::Tensor& tensor, const torch::Tensor& master, std::string_view name) {
  ZEROTH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() && tensor.numel() == master.numel(),
               "{} has {} elements in {} dimensions, the master {}", name, tensor.numel(),
               tensor.dim(), master.numel());
  ZEROTH_CHECK(tensor.scalar_type() == torch::kFloat32 && tensor.device() == master.device(),
               "{} is {} on {}, the master fp32 on {}", name, c10::toString(tensor.scalar_type()),
               tensor.device().str(), master.device().str());
}

void check_range(const UpdateRule::Range& range) {
  ZEROTH_CHECK(range.states.size() == kStateNames.size(), "{} states, not {}", range.states.size(),
               kStateNames.size());
  check_tensor(range.master, range.master, "master");
  check_tensor(range.grad, range.master, "gradient");
  for (size_t i = 0; i < kStateNames.size(); ++i) {
    check_tensor(range.states[i], range.master, kStateNames[i]);
  }
}

// The kernels divide by their grad_scale as they read the gradient. A factor whose reciprocal is no
// normal fp32 number takes a pass of its own.
std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor) {
  ZEROTH_CHECK(std::isfinite(grad_factor) && grad_factor > 0, "gradient factor {}", grad_factor);
  if (grad_factor == 1) return std::nullopt;
  const float divisor = static_cast<float>(1 / grad_factor);
  if (std::isnormal(divisor)) return at::full({}, divisor, grad.options());
  grad.mul_(grad_factor);
  return std::nullopt;
}

}  // namespace

std::span<const std::string_view> Adam::state_names() const {
  return kStateNames;
}

void Adam::apply(const Range& range, int64_t update, double lr, double grad_factor) const {
  ZEROTH_CHECK(update >= 1, "update {}, not counted from 1", update);
  check_range(range);
  const std::optional<torch::Tensor> grad_scale = fold_factor(range.grad, grad_factor);
  const torch::Tensor step = at::full({}, update, range.master.options());
  const auto fused_kernel = config_.kind == configs::OptimizerConfig::Kind::kAdamW
                                ? &at::_ops::_fused_adamw_::call
                                : &at::_ops::_fused_adam_::call;
  fused_kernel({range.master}, {range.grad}, {range.states[0]}, {range.states[1]}, {}, {step}, lr,
               config_.betas[0], config_.betas[1], config_.weight_decay, config_.eps,
               /*amsgrad=*/false, /*maximize=*/false, grad_scale, /*found_inf=*/{});
}

}  // namespace zeroth::optim
