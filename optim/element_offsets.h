// Which number an element has among all of the model: what rests in bf16 is rounded by it. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "optim/update_constants.h"

namespace zeroth::optim {

// Elements of an array from `begin` to where the next entry begins.
struct OffsetSpan {
  int64_t begin = 0;
  kernel::ElementOffsets offsets;
};

// The numbers from the `elements`-th element on.
kernel::ElementOffsets offsets_from(const kernel::ElementOffsets& offsets, int64_t elements);

// As many of the elements [begin, end), from the first on, as a kernel takes at once: of one part,
// and alike in the upper halves of their numbers.
struct OffsetRun {
  int64_t end = 0;
  kernel::ElementOffsets offsets;
};
// `parts` ascend; elements before them, or all where there are none, have their index as number.
OffsetRun offset_run(std::span<const OffsetSpan> parts, int64_t begin, int64_t end);

}  // namespace zeroth::optim
