#include "zero/parameter_index.h"

#include <algorithm>
#include <map>

namespace zeroth::zero {
namespace {

using optim::OffsetSpan;
using optim::kernel::ElementOffsets;

// Returns the unit that would hold its block's parameters if none were sharded; a tied weight's
// own.
size_t first_unit_like(const UnitPlan& plan, size_t unit) {
  const Unit& own = plan.units[unit];
  if (own.is_tied()) return unit;
  for (size_t u = 0; u < unit; ++u) {
    const Unit& other = plan.units[u];
    if (other.blocks == own.blocks && other.trainable == own.trainable &&
        other.own_dtype == own.own_dtype)
      return u;
  }
  return unit;
}

// Returns per [unit][slot] the offset of the first element of its global parameter. In a single
// unsharded rank these are the offsets in its units, concatenated.
std::vector<std::vector<int64_t>> first_offsets(const UnitPlan& plan) {
  std::vector<std::vector<int64_t>> firsts;
  for (const Unit& unit : plan.units) firsts.emplace_back(unit.layout.slots().size());
  constexpr int64_t kAlignment = FlatLayout::kAlignment;
  int64_t next = 0;
  for (const GlobalParameter& parameter : global_parameters(plan)) {
    for (const auto& [unit, slot] : parameter.slices) firsts[unit][slot] = next;
    next += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return firsts;
}

ElementOffsets row_offsets(const SliceRows& rows, int64_t before) {
  if (rows.count == 1) return {.first = before + rows.offset};
  return {before + rows.offset, rows.length, rows.length, rows.stride - rows.length};
}

// Appends `size` elements; the offsets of padding between them do not matter.
void append(std::vector<OffsetSpan>& parts, const OffsetSpan& part, int64_t size) {
  if (parts.empty()) return parts.push_back(part);
  ElementOffsets& last = parts.back().offsets;
  const int64_t elements = part.begin - parts.back().begin;
  const ElementOffsets expected = optim::offsets_from(last, elements);
  const ElementOffsets& offsets = part.offsets;
  const bool continues = expected.first == offsets.first;
  if (continues && offsets.gap == 0 && (expected.gap == 0 || size <= expected.left)) return;
  // The last span is the end of the row before these.
  if (last.gap == 0 && offsets.gap > 0 && expected.first + offsets.gap == offsets.first) {
    last = {last.first, elements, offsets.length, offsets.gap};
    return;
  }
  parts.push_back(part);
}

}  // namespace

std::vector<GlobalParameter> global_parameters(const UnitPlan& plan) {
  std::vector<size_t> unsharded_unit(plan.units.size());
  for (size_t u = 0; u < unsharded_unit.size(); ++u) unsharded_unit[u] = first_unit_like(plan, u);
  std::vector<SlotIndex> places = plan.parameter_order;
  std::ranges::stable_sort(places, {},
                           [&](const SlotIndex& place) { return unsharded_unit[place.unit]; });
  std::vector<GlobalParameter> parameters;
  std::map<std::string, size_t> known;
  for (const SlotIndex& place : places) {
    const Unit& unit = plan.units[place.unit];
    const GlobalSlice& global = unit.layout.slots()[place.slot].global;
    const auto [at, is_new] = known.try_emplace(global.name, parameters.size());
    if (is_new) {
      parameters.push_back({global.name,
                            global.slice.shape,
                            unit.trainable,
                            unit.is_saved,
                            unit.own_dtype == torch::kFloat,
                            unit.blocks.front(),
                            {}});
    }
    parameters[at->second].slices.push_back(place);
  }
  return parameters;
}

std::vector<std::vector<OffsetSpan>> element_offsets(const UnitPlan& plan) {
  const std::vector<std::vector<int64_t>> firsts = first_offsets(plan);
  std::vector<std::vector<OffsetSpan>> offsets(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const FlatLayout& layout = plan.units[u].layout;
    const Range owned_range = plan.units[u].owned_range();
    for (size_t i = 0; i < layout.slots().size(); ++i) {
      const Slot& slot = layout.slots()[i];
      const Range own = layout.overlap(i, owned_range);
      int64_t at = slot.offset + own.begin - owned_range.begin;
      if (own.size() == 0) continue;
      for (const SliceRows& rows :
           slice_rows(slot.global.slice, own.begin, own.size(), own.size())) {
        append(offsets[u], {at, row_offsets(rows, firsts[u][i])}, rows.elements());
        at += rows.elements();
      }
    }
  }
  return offsets;
}

}  // namespace zeroth::zero
