// Checks of Trainer's flags that set nothing here, but that request what a run may do by itself:
// --bf16_full_eval if it trains in bf16.
#pragma once

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Checks a plan whose configuration is known. Throws an Error that lists each flag that requests
// something else than the run does, with both.
void check_hf_requests(const RunPlan& plan);

}  // namespace zeroth::trainer
