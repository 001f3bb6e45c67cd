// Which number an element has among all of the model: what rests in bf16 is rounded by it. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "optim/update_constants.h"

namespace zeroth::optim {

// Elements of an array from `begin` to where the next entry begins.
struct NumberedPart {
  int64_t begin = 0;
  kernel::Numbers numbers;
};

// The numbers from the `elements`-th element on.
kernel::Numbers numbers_from(const kernel::Numbers& numbers, int64_t elements);

// As many of the elements [begin, end), from the first on, as a kernel takes at once: of one part,
// and alike in the upper halves of their numbers.
struct NumberedRun {
  int64_t end = 0;
  kernel::Numbers numbers;
};
// `parts` ascend; elements before them, or all where there are none, have their index as number.
NumberedRun numbered_run(std::span<const NumberedPart> parts, int64_t begin, int64_t end);

}  // namespace zeroth::optim
