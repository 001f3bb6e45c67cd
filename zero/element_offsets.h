// Global element offsets, which seed the rounding of values kept in bf16: an element's offset in
// its global parameter, plus the sizes of all parameters before it. They do not depend on the
// number of ranks or on how these shard the model.
#pragma once

#include <vector>

#include "optim/element_offsets.h"
#include "zero/unit.h"

namespace zeroth::zero {

// Returns, per [unit], the offsets of the elements of Unit::owned_range(). One span if the rank
// owns every parameter in full.
std::vector<std::vector<optim::OffsetSpan>> element_offsets(const UnitPlan& plan);

}  // namespace zeroth::zero
