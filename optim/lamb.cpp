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
constexpr int64_t kPart = int64_t{1} << 22;

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

// Calls visit(part, constants, parameter).
template <typename Visit>
void Lamb::for_each_part(const Tile& tile, const UpdateStep& step,
                         std::span<const Stretch> stretches, const Visit& visit) const {
  check_arguments(*this, tile, step);
  UpdateStep undecayed = step;
  undecayed.weight_decay = 0;
  const Constants decays = kernel::constants_of(config_, step);
  const Constants stays = kernel::constants_of(config_, undecayed);
  for (const Stretch& stretch : stretches) {
    for (int64_t begin = stretch.begin; begin < stretch.end; begin += kPart) {
      const int64_t size = std::min(kPart, stretch.end - begin);
      const auto part = [&](const Tensor& x) {
        return x.defined() ? x.narrow(0, begin, size) : Tensor();
      };
      visit(Part{part(tile.master), part(tile.grad), part(tile.states[0]), part(tile.states[1]),
                 part(tile.copy)},
            stretch.decays ? decays : stays, stretch.parameter);
    }
  }
}

void Lamb::sum(const Tile& tile, const UpdateStep& step, std::span<const Stretch> stretches,
               const Tensor& sums) const {
  ZEROTH_CHECK(!tile.ratios.defined(), "ratios before there are norms");
  for_each_part(tile, step, stretches, [&](const Part& part, const Constants& c, int64_t row) {
    sum_part(part, c, sums[row]);
  });
}

Tensor Lamb::ratios(const Tensor& sums) const {
  const Tensor norms = sums.sqrt().to(torch::kFloat);
  const Tensor weights = norms.select(1, 0), directions = norms.select(1, 1);
  const Tensor ratios =
      weights.div(directions).clamp_max_(config_.max_coeff).clamp_min_(config_.min_coeff);
  return at::where(weights.ne(0).logical_and(directions.ne(0)), ratios, at::ones_like(ratios));
}

void Lamb::apply(const Tile& tile, const UpdateStep& step) const {
  const Stretch whole{0, tile.master.numel()};
  apply_stretches(tile, step, {&whole, 1});
}

void Lamb::apply_stretches(const Tile& tile, const UpdateStep& step,
                           std::span<const Stretch> stretches) const {
  ZEROTH_CHECK(tile.ratios.defined(), "no ratios: Lamb's norms have not been summed");
  for_each_part(tile, step, stretches, [&](const Part& part, const Constants& c, int64_t row) {
    step_part(part, c, tile.ratios[row]);
  });
}

void Lamb::sum_part(const Part& part, const Constants& c, const Tensor& sums) const {
  Tensor grad = part.grad.to(torch::kFloat);
  if (c.factor != 1) grad = grad * c.factor;
  if (c.divisor != 1) grad = grad / c.divisor;
  Tensor first = part.first, second = part.second;
  first.mul_(c.keep_first).add_(grad, c.add_first);
  second.mul_(c.keep_second).addcmul_(grad, grad, c.add_second);
  sums[0].add_(sum_of_squares(part.master));
  sums[1].add_(sum_of_squares(direction(part.master, first, second, c)));
}

void Lamb::step_part(const Part& part, const Constants& c, const Tensor& ratio) const {
  Tensor master = part.master, copy = part.copy;
  master.addcmul_(direction(master, part.first, part.second, c), ratio * c.minus_rate);
  if (copy.defined()) copy.copy_(master);
}

}  // namespace zeroth::optim
