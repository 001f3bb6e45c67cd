// Parameters that a step leaves without a gradient.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "zero/grad_reducer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Throws an Error on every rank, with the parameter and the rank, when a trainable parameter that
// has elements got no gradient in this step on some rank. Call before the reducer's reset().
// Collective.
void require_gradients(const zero::UnitPlan& plan, const zero::GradReducer& grads, int64_t step,
                       const comm::Mesh& mesh);

}  // namespace zeroth::engine
