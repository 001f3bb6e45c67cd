// Flags of Trainer's that nothing here follows, but that ask for what a run may do by itself:
// --bf16_full_eval where it trains in bf16.
#pragma once

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Of a plan whose configuration is known. Throws an Error with each flag that asks for something
// else than the run does, and with both.
void check_hf_requests(const RunPlan& plan);

}  // namespace zeroth::trainer
