#include "optim/range_checks.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "base/error.h"

namespace zeroth::optim {
namespace {

void check_tensor(const torch::Tensor& tensor, const torch::Tensor& master, std::string_view name) {
  ZEROTH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() && tensor.numel() == master.numel(),
               "{} has {} elements in {} dimensions, the master {}", name, tensor.numel(),
               tensor.dim(), master.numel());
  ZEROTH_CHECK(tensor.scalar_type() == torch::kFloat32 && tensor.device() == master.device(),
               "{} is {} on {}, the master fp32 on {}", name, c10::toString(tensor.scalar_type()),
               tensor.device().str(), master.device().str());
}

}  // namespace

void check_arguments(const UpdateRule& rule, const UpdateRule::Range& range,
                     const UpdateRule::Step& step) {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  const auto names = rule.state_names();
  ZEROTH_CHECK(range.states.size() == names.size(), "{} states, not {}", range.states.size(),
               names.size());
  check_tensor(range.master, range.master, "master");
  check_tensor(range.grad, range.master, "gradient");
  for (size_t i = 0; i < names.size(); ++i) check_tensor(range.states[i], range.master, names[i]);
}

std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor) {
  if (grad_factor == 1) return std::nullopt;
  const float divisor = static_cast<float>(1 / grad_factor);
  if (std::isnormal(divisor)) return at::full({}, divisor, grad.options());
  grad.mul_(grad_factor);
  return std::nullopt;
}

}  // namespace zeroth::optim
