#include "engine/non_finite.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/unit_place.h"

namespace zeroth::engine {
namespace {

int64_t first_bad_slot(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  for (size_t unit = plan.units.size(); unit-- > 0;) {
    const torch::Tensor grad = grads.grad(unit);
    if (!grad.defined() || at::isfinite(grad).all().item<bool>()) continue;
    const zero::Range range = grads.range(unit);
    const auto& slots = plan.units[unit].layout.slots();
    for (size_t slot = slots.size(); slot-- > 0;) {
      const zero::Range in_slot = plan.units[unit].layout.overlap(slot, range);
      if (in_slot.size() == 0) continue;
      const int64_t begin = slots[slot].offset + in_slot.begin - range.begin;
      if (!at::isfinite(grad.narrow(0, begin, in_slot.size())).all().item<bool>()) {
        return place_of(plan, unit, slot);
      }
    }
  }
  return kNowhere;
}

}  // namespace

NonFiniteSkips make_non_finite_skips(const configs::Config& config) {
  using End = NonFiniteSkips::End;
  const bool dynamic =
      config.precision == configs::Precision::kFp16 && config.loss_scale.static_scale == 0;
  if (dynamic) return NonFiniteSkips(End::kAtFloor);
  return NonFiniteSkips(config.on_non_finite == configs::OnNonFinite::kFail ? End::kFirst
                                                                            : End::kTenthInARow);
}

std::string NonFiniteSkips::skipped_step(const Skip& skip, const zero::UnitPlan& plan,
                                         const zero::GradReducer& grads, comm::Mesh& mesh) {
  find_place(skip, plan, grads, mesh);
  ++in_a_row_;
  if (!ends(skip)) return {};
  std::string why = fmt::format("{} in {}", what_happened(skip), gradient_);
  if (!output_.empty()) why += "; " + output_;
  if (end_ == End::kTenthInARow && skip.loss_scale != 1) {
    why += fmt::format("; the loss scale was {:g} (fp16.initial_scale_power sets where it starts)",
                       skip.loss_scale);
  }
  return why;
}

void NonFiniteSkips::find_place(const Skip& skip, const zero::UnitPlan& plan,
                                const zero::GradReducer& grads, comm::Mesh& mesh) {
  if (in_a_row_ == 0) {
    first_step_ = skip.step;
    const int64_t place = least_over_ranks(first_bad_slot(plan, grads),
                                           "the first gradient that is not finite", mesh);
    gradient_ = place == kNowhere ? "no single parameter (the norm itself overflowed)"
                                  : describe_place(plan, place);
  } else if (output_.empty()) {
    const int64_t mine = skip.bad_output ? static_cast<int64_t>(*skip.bad_output) : kNowhere;
    const int64_t first = least_over_ranks(mine, "the first output that is not finite", mesh);
    output_ = first == kNowhere
                  ? "every block's output is finite in forward"
                  : fmt::format("in forward the output of block {} is the first that is not finite",
                                plan.block_labels[static_cast<size_t>(first)]);
  }
}

bool NonFiniteSkips::ends(const Skip& skip) const {
  switch (end_) {
    case End::kFirst:
      return true;
    case End::kAtFloor:
      return skip.at_floor;
    default:
      return in_a_row_ >= kMostInARow;
  }
}

std::string NonFiniteSkips::what_happened(const Skip& skip) const {
  switch (end_) {
    case End::kFirst:
      return fmt::format("the gradients of step {} are not finite, first in backward", skip.step);
    case End::kAtFloor:
      return fmt::format(
          "the gradients of step {} are not finite at a loss scale of {:g}, its floor "
          "(fp16.min_loss_scale), after {} such steps in a row; in step {} it appeared first in "
          "backward",
          skip.step, skip.loss_scale, in_a_row_, first_step_);
    default:
      return fmt::format(
          "{} steps in a row had gradients that are not finite, since step {}; there it appeared "
          "first in backward",
          in_a_row_, first_step_);
  }
}

}  // namespace zeroth::engine
