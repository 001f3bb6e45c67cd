#include "optim/rule_checks.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"

namespace zeroth::optim {
namespace {

void check_tensor(const torch::Tensor& tensor, const torch::Tensor& master, std::string_view name,
                  std::initializer_list<torch::ScalarType> dtypes) {
  ZEROTH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() && tensor.numel() == master.numel(),
               "{} has {} elements in {} dimensions, the master {}", name, tensor.numel(),
               tensor.dim(), master.numel());
  const bool known = std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) != dtypes.end();
  ZEROTH_CHECK(known && tensor.device() == master.device(), "{} is {} on {}, the master {} on {}",
               name, c10::toString(tensor.scalar_type()), tensor.device().str(),
               c10::toString(master.scalar_type()), master.device().str());
}

}  // namespace

void check_arguments(const UpdateRule& rule, const UpdateRule::Chunk& chunk,
                     const UpdateStep& step) {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  const auto names = rule.state_names();
  ZEROTH_CHECK(chunk.states.size() == names.size(), "{} states, not {}", chunk.states.size(),
               names.size());
  constexpr auto kFloat = torch::kFloat32, kBf16 = torch::kBFloat16, kHalf = torch::kFloat16;
  check_tensor(chunk.master, chunk.master, "master", {rule.master_dtype()});
  if (!chunk.ratios.defined()) {
    check_tensor(chunk.grad, chunk.master, "gradient", {kFloat, kBf16, kHalf});
  }
  for (size_t i = 0; i < names.size(); ++i) {
    check_tensor(chunk.states[i], chunk.master, names[i], {rule.state_dtype()});
  }
  if (chunk.copy.defined()) check_tensor(chunk.copy, chunk.master, "copy", {kBf16, kHalf});
}

std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor) {
  if (grad_factor == 1) return std::nullopt;
  const float divisor = static_cast<float>(1 / grad_factor);
  if (std::isnormal(divisor)) return at::full({}, divisor, grad.options());
  grad.mul_(grad_factor);
  return std::nullopt;
}

}  // namespace zeroth::optim
