#include "engine/verify/parameter_faults.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "zero/strategy.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kSlotsPerUnit = int64_t{1} << 24;
constexpr const char* kWhat = "parameters without a gradient";

// Returns the first order that `find(unit)` returns for a unit that is trained here, from the last
// unit to the first.
template <typename Find>
int64_t first_in_backward(const zero::UnitPlan& plan, const Find& find) {
  for (size_t unit = plan.units.size(); unit-- > 0;) {
    const int64_t order = plan.units[unit].is_trained_here() ? find(unit) : kNone;
    if (order != kNone) return order;
  }
  return kNone;
}

int64_t first_unused(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  return first_in_backward(plan, [&](size_t unit) {
    const auto& slots = plan.units[unit].layout.slots();
    for (size_t slot = slots.size(); slot-- > 0;) {
      if (slots[slot].numel == 0 || grads.got_gradient(unit, slot)) continue;
      return parameter_order(plan, unit, slot);
    }
    return kNone;
  });
}

bool is_finite(const torch::Tensor& values) {
  if (values.numel() == 0) return true;
  const auto [low, high] = at::aminmax(values);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

// Returns the order of the last parameter with a value that is not finite in `values`, which are
// `range` of a unit's flat buffer.
int64_t first_bad(const zero::UnitPlan& plan, size_t unit, const torch::Tensor& values,
                  const zero::Range& range) {
  if (is_finite(values)) return kNone;
  const auto& slots = plan.units[unit].layout.slots();
  for (size_t slot = slots.size(); slot-- > 0;) {
    const zero::Range in_slot = plan.units[unit].layout.overlap(slot, range);
    const int64_t begin = slots[slot].offset + in_slot.begin - range.begin;
    if (in_slot.size() == 0 || is_finite(values.narrow(0, begin, in_slot.size()))) continue;
    return parameter_order(plan, unit, slot);
  }
  return kNone;
}

int64_t first_bad_gradient(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  return first_in_backward(plan, [&](size_t unit) {
    return first_bad(plan, unit, grads.grad(unit), grads.range(unit));
  });
}

int64_t first_bad_parameter(const zero::UnitPlan& plan, const zero::Strategy& strategy) {
  return first_in_backward(plan, [&](size_t unit) {
    const offload::ChunkLease shard = strategy.params->acquire_shard(unit);
    return first_bad(plan, unit, shard.tensor(), strategy.store->range(unit));
  });
}

}  // namespace

int64_t parameter_order(const zero::UnitPlan& plan, size_t unit, size_t slot) {
  const size_t later_units = plan.units.size() - 1 - unit;
  const size_t later_slots = plan.units[unit].layout.slots().size() - 1 - slot;
  return static_cast<int64_t>(later_units) * kSlotsPerUnit + static_cast<int64_t>(later_slots);
}

std::string parameter_at(const zero::UnitPlan& plan, int64_t order) {
  ZEROTH_CHECK(order != kNone, "no order");
  const zero::Unit& unit =
      plan.units[plan.units.size() - 1 - static_cast<size_t>(order / kSlotsPerUnit)];
  const auto& slots = unit.layout.slots();
  return fmt::format("block {}, parameter {}", plan.block_labels[unit.blocks.front()],
                     slots[slots.size() - 1 - static_cast<size_t>(order % kSlotsPerUnit)].name);
}

bool has_unused_parameters(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  return first_unused(plan, grads) != kNone;
}

void throw_unused_parameter(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                            int64_t step, const comm::DeviceMesh& mesh) {
  const int64_t mine = first_unused(plan, grads);
  const int64_t order = comm::min_over_ranks(mine, kWhat, mesh);
  const int64_t rank = comm::min_over_ranks(mine == order ? mesh.rank() : kNone, kWhat, mesh);
  throw Error(
      "step {}: {} got no gradient on rank {}: zero_optimization.ignore_unused_parameters is false "
      "(with true its gradient counts as zero)",
      step, parameter_at(plan, order), rank);
}

NonFiniteSkips make_non_finite_skips(const configs::Config& config) {
  using End = NonFiniteSkips::End;
  const bool dynamic = config.scales_loss() && config.loss_scale.is_dynamic();
  if (dynamic) return NonFiniteSkips(End::kAtFloor);
  return NonFiniteSkips(config.on_non_finite == configs::OnNonFinite::kFail ? End::kFirst
                                                                            : End::kTenthInARow);
}

std::string NonFiniteSkips::not_finite(const Skip& skip, const zero::UnitPlan& plan,
                                       const zero::Strategy& strategy, comm::DeviceMesh& mesh) {
  if (row_.in_a_row == 0) {
    find_gradient(skip, plan, strategy, mesh);
  } else if (row_.output.empty()) {
    find_output(skip, plan, mesh);
  }
  ++row_.in_a_row;
  if (!ends(skip)) return {};
  if (!parameter_.empty()) {
    return fmt::format(
        "the update before step {} left parameters that are not finite, the first in {}",
        row_.first_step, parameter_);
  }
  std::string why = fmt::format("{} in {}", describe_skip(skip), row_.gradient);
  if (skip.applied) return why + ", and were applied (bf16.check_grad_overflow is false)";
  if (!row_.output.empty()) why += "; " + row_.output;
  if (end_ == End::kTenthInARow && skip.loss_scale != 1) {
    why += fmt::format("; the loss scale is {:g} (fp16.loss_scale sets it, and 0 lets it adapt)",
                       skip.loss_scale);
  }
  return why;
}

std::string NonFiniteSkips::since() const {
  return fmt::format("since step {}, first in backward in {}", row_.first_step, row_.gradient);
}

void NonFiniteSkips::find_gradient(const Skip& skip, const zero::UnitPlan& plan,
                                   const zero::Strategy& strategy, comm::DeviceMesh& mesh) {
  row_.first_step = skip.step;
  const int64_t gradient = comm::min_over_ranks(first_bad_gradient(plan, *strategy.grads),
                                                "the first gradient that is not finite", mesh);
  row_.in_one = gradient != kNone;
  row_.gradient = row_.in_one ? parameter_at(plan, gradient)
                              : "no single parameter (the norm itself overflowed)";
  const int64_t parameter = comm::min_over_ranks(first_bad_parameter(plan, strategy),
                                                 "the first parameter that is not finite", mesh);
  if (parameter != kNone) parameter_ = parameter_at(plan, parameter);
}

void NonFiniteSkips::find_output(const Skip& skip, const zero::UnitPlan& plan,
                                 comm::DeviceMesh& mesh) {
  const int64_t mine = skip.bad_output ? static_cast<int64_t>(*skip.bad_output) : kNone;
  const int64_t first = comm::min_over_ranks(mine, "the first output that is not finite", mesh);
  row_.output =
      first == kNone
          ? "every block's output is finite in forward"
          : fmt::format("in forward the output of block {} is the first that is not finite",
                        plan.block_labels[static_cast<size_t>(first)]);
}

bool NonFiniteSkips::ends(const Skip& skip) const {
  if (!parameter_.empty()) return true;
  if (skip.applied) return row_.in_one;
  if (end_ == End::kAtFloor) return skip.at_floor;
  return end_ == End::kFirst || row_.in_a_row >= kMaxInARow;
}

std::string NonFiniteSkips::describe_skip(const Skip& skip) const {
  if (skip.applied || end_ == End::kFirst) {
    return fmt::format("the gradients of step {} are not finite, first in backward", skip.step);
  }
  if (end_ == End::kAtFloor) {
    return fmt::format(
        "the gradients of step {} are not finite at a loss scale of {:g}, its floor "
        "(fp16.min_loss_scale), after {} such steps in a row; in step {} it appeared first in "
        "backward",
        skip.step, skip.loss_scale, row_.in_a_row, row_.first_step);
  }
  return fmt::format(
      "{} steps in a row had gradients that are not finite, since step {}; there it appeared first "
      "in backward",
      row_.in_a_row, row_.first_step);
}

}  // namespace zeroth::engine
