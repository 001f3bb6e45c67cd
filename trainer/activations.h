// What a run's activations will take.
#pragma once

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Runs one layer of the plan's model, and a part of its embedding and head, for real on one row (a
// small model's on some more), and puts what all of them will take into the plan's outline. Takes
// the memory of that row and of the layer's gradient for so long, and one part in (rows x layers)
// of the first step's time; for small models 2e9 operations at most. Does nothing without data.
void measure_activations(RunPlan& plan);

}  // namespace zeroth::trainer
