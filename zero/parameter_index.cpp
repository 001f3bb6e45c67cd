#include "zero/parameter_index.h"

#include <algorithm>
#include <map>
#include <utility>

namespace zeroth::zero {
namespace {

// Returns the unit that would hold its block's parameters if none were sharded; a tied weight's
// own.
size_t first_unit_like(const UnitPlan& plan, size_t unit) {
  const Unit& own = plan.units[unit];
  if (own.blocks.size() > 1) return unit;
  for (size_t u = 0; u < unit; ++u) {
    const Unit& other = plan.units[u];
    if (other.blocks == own.blocks && other.trainable == own.trainable) return u;
  }
  return unit;
}

}  // namespace

int64_t GlobalParameter::numel() const {
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  return numel;
}

TensorSlice slice_of(const Slot& slot) {
  return {slot.global.shape, slot.global.begin, slot.shape};
}

std::vector<GlobalParameter> global_parameters(const UnitPlan& plan) {
  std::vector<size_t> unsharded_unit(plan.units.size());
  for (size_t u = 0; u < unsharded_unit.size(); ++u) unsharded_unit[u] = first_unit_like(plan, u);
  std::vector<SlotIndex> places = plan.parameter_order;
  std::stable_sort(places.begin(), places.end(), [&](const SlotIndex& one, const SlotIndex& other) {
    return unsharded_unit[one.unit] < unsharded_unit[other.unit];
  });
  std::vector<GlobalParameter> parameters;
  std::map<std::string, size_t> known;
  for (const SlotIndex& place : places) {
    const Unit& unit = plan.units[place.unit];
    const GlobalTensor& whole = unit.layout.slots()[place.slot].global;
    const auto [at, is_new] = known.try_emplace(whole.name, parameters.size());
    if (is_new) {
      parameters.push_back({whole.name, whole.shape, unit.trainable, unit.blocks.front(), {}});
    }
    parameters[at->second].slices.push_back(place);
  }
  return parameters;
}

}  // namespace zeroth::zero
