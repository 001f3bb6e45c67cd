// The numbers by which what rests in bf16 is rounded: an element's place in its whole parameter,
// behind those of all parameters before it. The same on any ranks, however they share the model.
#pragma once

#include <vector>

#include "optim/element_offsets.h"
#include "zero/unit.h"

namespace zeroth::zero {

// [unit]: of the elements of Unit::share(). One part where the rank has all of every parameter.
std::vector<std::vector<optim::OffsetSpan>> element_offsets(const UnitPlan& plan);

}  // namespace zeroth::zero
