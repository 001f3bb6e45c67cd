#include "optim/lamb.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "optim/rule_checks.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

// Elements whose directions are in memory at a time.
constexpr int64_t kSliceElements = int64_t{1} << 22;

Tensor direction(const Tensor& master, const Tensor& first, const Tensor& second,
                 const kernel::Constants& c) {
  const Tensor divisor = c.eps_inside ? second.add(c.eps).sqrt_() : second.sqrt().add_(c.eps);
  return first.div(divisor).add_(master, c.decay);
}

Tensor sum_of_squares(const Tensor& x) {
  return x.to(torch::kDouble).square_().sum();
}

}  // namespace

std::span<const std::string_view> Lamb::state_names() const {
  static constexpr std::array<std::string_view, 2> kNames = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

// Calls visit(slice, constants, parameter) for each slice.
template <typename Visit>
void Lamb::for_each_slice(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups, const Visit& visit) const {
  check_arguments(*this, chunk, step);
  UpdateStep undecayed = step;
  undecayed.weight_decay = 0;
  const Constants decays = kernel::make_constants(config_, step);
  const Constants undecayed_constants = kernel::make_constants(config_, undecayed);
  for (const ParamGroupRange& group : param_groups) {
    for (int64_t begin = group.begin; begin < group.end; begin += kSliceElements) {
      const int64_t size = std::min(kSliceElements, group.end - begin);
      const auto slice = [&](const Tensor& x) {
        return x.defined() ? x.narrow(0, begin, size) : Tensor();
      };
      visit(LambSlice{slice(chunk.master), slice(chunk.grad), slice(chunk.states[0]),
                      slice(chunk.states[1]), slice(chunk.copy)},
            group.decays ? decays : undecayed_constants, group.parameter);
    }
  }
}

void Lamb::sum(const Chunk& chunk, const UpdateStep& step,
               std::span<const ParamGroupRange> param_groups, const Tensor& sums) const {
  ZEROTH_CHECK(!chunk.ratios.defined(), "ratios before there are norms");
  for_each_slice(chunk, step, param_groups,
                 [&](const LambSlice& slice, const Constants& c, int64_t row) {
                   sum_slice(slice, c, sums[row]);
                 });
}

Tensor Lamb::ratios(const Tensor& sums) const {
  const Tensor norms = sums.sqrt().to(torch::kFloat);
  const Tensor weights = norms.select(1, 0), directions = norms.select(1, 1);
  const Tensor ratios =
      weights.div(directions).clamp_max_(config_.max_coeff).clamp_min_(config_.min_coeff);
  return at::where(weights.ne(0).logical_and(directions.ne(0)), ratios, at::ones_like(ratios));
}

void Lamb::apply(const Chunk& chunk, const UpdateStep& step) const {
  const ParamGroupRange whole{0, chunk.master.numel()};
  apply_param_groups(chunk, step, {&whole, 1});
}

void Lamb::apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                              std::span<const ParamGroupRange> param_groups) const {
  ZEROTH_CHECK(chunk.ratios.defined(), "no ratios: Lamb's norms have not been summed");
  for_each_slice(chunk, step, param_groups,
                 [&](const LambSlice& slice, const Constants& c, int64_t row) {
                   step_slice(slice, c, chunk.ratios[row]);
                 });
}

void Lamb::sum_slice(const LambSlice& slice, const Constants& c, const Tensor& sums) const {
  Tensor grad = slice.grad.to(torch::kFloat);
  if (c.factor != 1) grad = grad * c.factor;
  if (c.divisor != 1) grad = grad / c.divisor;
  Tensor first = slice.first, second = slice.second;
  first.mul_(c.keep_first).add_(grad, c.add_first);
  second.mul_(c.keep_second).addcmul_(grad, grad, c.add_second);
  sums[0].add_(sum_of_squares(slice.master));
  sums[1].add_(sum_of_squares(direction(slice.master, first, second, c)));
}

void Lamb::step_slice(const LambSlice& slice, const Constants& c, const Tensor& ratio) const {
  Tensor master = slice.master, copy = slice.copy;
  master.addcmul_(direction(master, slice.first, slice.second, c), ratio * c.minus_rate);
  if (copy.defined()) copy.copy_(master);
}

}  // namespace zeroth::optim
