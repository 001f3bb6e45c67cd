// What a run's activations will take.
#pragma once

#include "engine/memory_estimate.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Runs one layer of the plan's model, and a part of its embedding and head, for real on one row (a
// small model's on some more), to know what all of them will take. Takes the memory of that row and
// of the layer's gradient for so long, and one part in (rows x layers) of the first step's time;
// for small models 2e9 operations at most.
engine::MicroBatchSize measure_activations(const RunPlan& plan);

}  // namespace zeroth::trainer
