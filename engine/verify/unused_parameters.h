// Detection of parameters that a step leaves without a gradient.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "zero/grad_reducer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Returns whether a trainable parameter with elements got no gradient on this rank in this step.
// Call it, and throw_unused_parameter(), before the reducer's reset().
bool has_unused_parameters(const zero::UnitPlan& plan, const zero::GradReducer& grads);

// Throws an Error that names the first unused parameter and its rank. Some rank must have one.
// Collective.
[[noreturn]] void throw_unused_parameter(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                                         int64_t step, const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
