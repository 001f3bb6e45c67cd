// A measurement of the memory of a run's activations.
#pragma once

#include "engine/memory/memory_estimate.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Runs one layer of the plan's model, and a part of its embedding and head, on one real row (more
// rows for a small model), and derives the memory of all activations. Occupies the memory of that
// row and of the layer's gradient meanwhile. Takes one part in (rows x layers) of the first step's
// time; at most 2e9 operations for small models.
engine::MicroBatchSize measure_activations(const RunPlan& plan);

}  // namespace zeroth::trainer
