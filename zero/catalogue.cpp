#include "zero/catalogue.h"

#include <algorithm>
#include <map>
#include <utility>

namespace zeroth::zero {
namespace {

// The unit that would hold all of its block's were none of them shared. A tied weight is alone.
size_t first_alike(const UnitPlan& plan, size_t unit) {
  const Unit& own = plan.units[unit];
  if (own.blocks.size() > 1) return unit;
  for (size_t u = 0; u < unit; ++u) {
    const Unit& other = plan.units[u];
    if (other.blocks == own.blocks && other.trainable == own.trainable) return u;
  }
  return unit;
}

}  // namespace

int64_t WholeParameter::numel() const {
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  return numel;
}

TensorBox box_of(const Slot& slot) {
  return {slot.whole.shape, slot.whole.begin, slot.shape};
}

std::vector<WholeParameter> whole_parameters(const UnitPlan& plan) {
  std::vector<size_t> unit_of_one(plan.units.size());
  for (size_t u = 0; u < unit_of_one.size(); ++u) unit_of_one[u] = first_alike(plan, u);
  std::vector<SlotPlace> places = plan.listed;
  std::stable_sort(places.begin(), places.end(), [&](const SlotPlace& one, const SlotPlace& other) {
    return unit_of_one[one.unit] < unit_of_one[other.unit];
  });
  std::vector<WholeParameter> parameters;
  std::map<std::string, size_t> known;
  for (const SlotPlace& place : places) {
    const Unit& unit = plan.units[place.unit];
    const Whole& whole = unit.layout.slots()[place.slot].whole;
    const auto [at, is_new] = known.try_emplace(whole.name, parameters.size());
    if (is_new) {
      parameters.push_back({whole.name, whole.shape, unit.trainable, unit.blocks.front(), {}});
    }
    parameters[at->second].boxes.push_back(place);
  }
  return parameters;
}

}  // namespace zeroth::zero
