// Parameters that a step leaves without a gradient.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "zero/grad_reducer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Whether a trainable parameter that has elements got no gradient on this rank in this step. To be
// called before the reducer's reset(), as throw_unused_parameter().
bool has_unused_parameters(const zero::UnitPlan& plan, const zero::GradReducer& grads);

// Throws an Error with the parameter and the rank: the first of them, on some rank there is one.
// Collective.
[[noreturn]] void throw_unused_parameter(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                                         int64_t step, const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
