// Parameters that a step leaves without a gradient.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "zero/grad_reducer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Whether a trainable parameter that has elements got no gradient on this rank in this step. To be
// called before the reducer's reset(), as refuse_unused().
bool leaves_unused(const zero::UnitPlan& plan, const zero::GradReducer& grads);

// Throws an Error with the parameter and the rank: the first of them, on some rank there is one.
// Collective.
[[noreturn]] void refuse_unused(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                                int64_t step, const comm::Mesh& mesh);

}  // namespace zeroth::engine
