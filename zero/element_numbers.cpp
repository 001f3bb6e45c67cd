#include "zero/element_numbers.h"

#include "zero/catalogue.h"

namespace zeroth::zero {
namespace {

using optim::NumberedPart;
using optim::kernel::Numbers;

// [unit][slot]: the number of the first element of its whole parameter. One rank that shares
// nothing has these as offsets in its units, one behind the other.
std::vector<std::vector<int64_t>> first_numbers(const UnitPlan& plan) {
  std::vector<std::vector<int64_t>> firsts;
  for (const Unit& unit : plan.units) firsts.emplace_back(unit.layout.slots().size());
  constexpr int64_t kAlignment = FlatLayout::kAlignment;
  int64_t next = 0;
  for (const WholeParameter& parameter : whole_parameters(plan)) {
    for (const auto& [unit, slot] : parameter.boxes) firsts[unit][slot] = next;
    next += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return firsts;
}

Numbers numbers_of(const BoxRows& rows, int64_t before) {
  if (rows.count == 1) return {.first = before + rows.whole};
  return {before + rows.whole, rows.length, rows.length, rows.stride - rows.length};
}

// Appends `size` elements; which numbers padding has between them does not matter.
void append(std::vector<NumberedPart>& parts, const NumberedPart& part, int64_t size) {
  if (parts.empty()) return parts.push_back(part);
  Numbers& last = parts.back().numbers;
  const int64_t elements = part.begin - parts.back().begin;
  const Numbers expected = optim::numbers_from(last, elements);
  const Numbers& numbers = part.numbers;
  const bool goes_on = expected.first == numbers.first;
  if (goes_on && numbers.gap == 0 && (expected.gap == 0 || size <= expected.left)) return;
  // What came before is the end of the row before these.
  if (last.gap == 0 && numbers.gap > 0 && expected.first + numbers.gap == numbers.first) {
    last = {last.first, elements, numbers.length, numbers.gap};
    return;
  }
  parts.push_back(part);
}

}  // namespace

std::vector<std::vector<NumberedPart>> element_numbers(const UnitPlan& plan) {
  const std::vector<std::vector<int64_t>> firsts = first_numbers(plan);
  std::vector<std::vector<NumberedPart>> numbers(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const FlatLayout& layout = plan.units[u].layout;
    const Range share = plan.units[u].share();
    for (size_t i = 0; i < layout.slots().size(); ++i) {
      const Slot& slot = layout.slots()[i];
      const Range own = layout.overlap(i, share);
      int64_t at = slot.offset + own.begin - share.begin;
      if (own.size() == 0) continue;
      for (const BoxRows& rows : rows_of_box(box_of(slot), own.begin, own.size(), own.size())) {
        append(numbers[u], {at, numbers_of(rows, firsts[u][i])}, rows.elements());
        at += rows.elements();
      }
    }
  }
  return numbers;
}

}  // namespace zeroth::zero
