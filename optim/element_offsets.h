// Global element offsets: an element's position among all elements of the model, which seeds the
// rounding to bf16. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "optim/update_constants.h"

namespace zeroth::optim {

// An OffsetSpan covers the elements of an array from `begin` to where the next span begins.
struct OffsetSpan {
  int64_t begin = 0;
  kernel::ElementOffsets offsets;
};

// Returns the offsets from the `elements`-th element on.
kernel::ElementOffsets offsets_from(const kernel::ElementOffsets& offsets, int64_t elements);

// An OffsetRun is as many of the elements [begin, end), from the first on, as a kernel accepts at
// once: elements of one span whose offsets have equal upper halves.
struct OffsetRun {
  int64_t end = 0;
  kernel::ElementOffsets offsets;
};
// Returns the run that starts at `begin`. `parts` are in ascending order; elements before them, or
// all if there are none, have their index as offset.
OffsetRun offset_run(std::span<const OffsetSpan> parts, int64_t begin, int64_t end);

}  // namespace zeroth::optim
