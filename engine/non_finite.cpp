#include "engine/non_finite.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kNowhere = INT64_MAX;
constexpr int64_t kSlotsPerUnit = int64_t{1} << 24;

// A place as one integer, so that a single all-reduce finds the least. Smaller is earlier in
// backward: units from the last to the first, slots from the last to the first.
int64_t first_bad_slot(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  for (size_t back = 0; back < plan.units.size(); ++back) {
    const size_t unit = plan.units.size() - 1 - back;
    const torch::Tensor grad = grads.grad(unit);
    if (!grad.defined() || at::isfinite(grad).all().item<bool>()) continue;
    const zero::Range range = grads.range(unit);
    const auto& slots = plan.units[unit].layout.slots();
    for (size_t slot = slots.size(); slot-- > 0;) {
      const zero::Range in_slot = plan.units[unit].layout.overlap(slot, range);
      if (in_slot.size() == 0) continue;
      const int64_t begin = slots[slot].offset + in_slot.begin - range.begin;
      if (!at::isfinite(grad.narrow(0, begin, in_slot.size())).all().item<bool>()) {
        return static_cast<int64_t>(back) * kSlotsPerUnit +
               static_cast<int64_t>(slots.size() - 1 - slot);
      }
    }
  }
  return kNowhere;
}

int64_t least_over_ranks(int64_t value, comm::Mesh& mesh) {
  const torch::Tensor tensor =
      torch::full({1}, value, torch::TensorOptions(mesh.device()).dtype(torch::kLong));
  mesh.data().all_reduce(tensor, comm::Reduce::kMin).wait();
  return tensor.item<int64_t>();
}

std::string describe(const zero::UnitPlan& plan, int64_t place) {
  if (place == kNowhere) return "no single parameter (the norm itself overflowed)";
  const zero::Unit& unit =
      plan.units[plan.units.size() - 1 - static_cast<size_t>(place / kSlotsPerUnit)];
  const auto& slots = unit.layout.slots();
  return fmt::format("block {}, parameter {}", plan.block_labels[unit.blocks.front()],
                     slots[slots.size() - 1 - static_cast<size_t>(place % kSlotsPerUnit)].name);
}

}  // namespace

std::string NonFiniteSkips::skipped_step(const Skip& skip, const zero::UnitPlan& plan,
                                         const zero::GradReducer& grads, comm::Mesh& mesh) {
  if (in_a_row_ == 0) {
    first_step_ = skip.step;
    gradient_ = describe(plan, least_over_ranks(first_bad_slot(plan, grads), mesh));
  } else if (output_.empty()) {
    const int64_t mine = skip.bad_output ? static_cast<int64_t>(*skip.bad_output) : kNowhere;
    const int64_t first = least_over_ranks(mine, mesh);
    output_ = first == kNowhere
                  ? "every block's output is finite in forward"
                  : fmt::format("in forward the output of block {} is the first that is not finite",
                                plan.block_labels[static_cast<size_t>(first)]);
  }
  if (++in_a_row_ < kMostInARow) return {};
  std::string why = fmt::format(
      "{} steps in a row had gradients that are not finite, since step {}; there it appeared first "
      "in backward in {}; {}",
      in_a_row_, first_step_, gradient_, output_);
  if (skip.loss_scale != 1) {
    why += fmt::format("; the loss scale was {:g} (fp16.initial_scale_power sets where it starts)",
                       skip.loss_scale);
  }
  return why;
}

}  // namespace zeroth::engine
