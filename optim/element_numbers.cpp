#include "optim/element_numbers.h"

#include <algorithm>

namespace zeroth::optim {
namespace {

constexpr int64_t kHalf = int64_t{1} << 32;

// How many elements have numbers below `limit`, which is above the first's. Numbers ascend.
int64_t count_below(const kernel::Numbers& numbers, int64_t limit) {
  const int64_t first_row = numbers.first + numbers.left;
  if (limit <= first_row) return limit - numbers.first;
  const int64_t beyond = limit - (first_row + numbers.gap);
  if (beyond <= 0) return numbers.left;
  const int64_t stride = numbers.length + numbers.gap;
  return numbers.left + beyond / stride * numbers.length +
         std::min(beyond % stride, numbers.length);
}

}  // namespace

kernel::Numbers numbers_from(const kernel::Numbers& numbers, int64_t elements) {
  const int64_t jumps =
      elements < numbers.left ? 0 : (elements - numbers.left) / numbers.length + 1;
  kernel::Numbers moved = numbers;
  moved.first += elements + jumps * numbers.gap;
  if (numbers.gap > 0) moved.left += jumps * numbers.length - elements;
  return moved;
}

NumberedRun numbered_run(std::span<const NumberedPart> parts, int64_t begin, int64_t end) {
  const auto next = std::upper_bound(
      parts.begin(), parts.end(), begin,
      [](int64_t element, const NumberedPart& part) { return element < part.begin; });
  const NumberedPart part = next == parts.begin() ? NumberedPart{} : *(next - 1);
  const kernel::Numbers numbers = numbers_from(part.numbers, begin - part.begin);
  int64_t stop = next == parts.end() ? end : std::min(end, next->begin);
  const int64_t half = (numbers.first / kHalf + 1) * kHalf;
  stop = std::min(stop, begin + count_below(numbers, half));
  return {stop, numbers};
}

}  // namespace zeroth::optim
