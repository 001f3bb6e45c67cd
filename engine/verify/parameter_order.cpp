#include "engine/verify/parameter_order.h"

#include <fmt/format.h>

#include "base/error.h"

namespace zeroth::engine {
namespace {

constexpr int64_t kSlotsPerUnit = int64_t{1} << 24;

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

}  // namespace zeroth::engine
