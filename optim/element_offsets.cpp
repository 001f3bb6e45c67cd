#include "optim/element_offsets.h"

#include <algorithm>

namespace zeroth::optim {
namespace {

constexpr int64_t kHalf = int64_t{1} << 32;

// Returns how many elements have offsets below `limit`, which is above the first's. Offsets ascend.
int64_t count_below(const kernel::ElementOffsets& offsets, int64_t limit) {
  const int64_t first_row = offsets.first + offsets.left;
  if (limit <= first_row) return limit - offsets.first;
  const int64_t beyond = limit - (first_row + offsets.gap);
  if (beyond <= 0) return offsets.left;
  const int64_t stride = offsets.length + offsets.gap;
  return offsets.left + beyond / stride * offsets.length +
         std::min(beyond % stride, offsets.length);
}

}  // namespace

kernel::ElementOffsets offsets_from(const kernel::ElementOffsets& offsets, int64_t elements) {
  const int64_t jumps =
      elements < offsets.left ? 0 : (elements - offsets.left) / offsets.length + 1;
  kernel::ElementOffsets moved = offsets;
  moved.first += elements + jumps * offsets.gap;
  if (offsets.gap > 0) moved.left += jumps * offsets.length - elements;
  return moved;
}

OffsetRun offset_run(std::span<const OffsetSpan> parts, int64_t begin, int64_t end) {
  const auto next = std::upper_bound(
      parts.begin(), parts.end(), begin,
      [](int64_t element, const OffsetSpan& part) { return element < part.begin; });
  const OffsetSpan part = next == parts.begin() ? OffsetSpan{} : *(next - 1);
  const kernel::ElementOffsets offsets = offsets_from(part.offsets, begin - part.begin);
  int64_t stop = next == parts.end() ? end : std::min(end, next->begin);
  const int64_t half = (offsets.first / kHalf + 1) * kHalf;
  stop = std::min(stop, begin + count_below(offsets, half));
  return {stop, offsets};
}

}  // namespace zeroth::optim
