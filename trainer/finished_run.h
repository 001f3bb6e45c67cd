// A run that has come to its end, and is started again.
#pragma once

#include <string>

namespace zeroth::trainer {

struct RunPlan;

// The message for a run that resumes from the checkpoint of its last step and has nothing left to
// do: its evaluation is known, and its model and results are in --output. Empty where something is
// left to do.
std::string finished_message(const RunPlan& plan);

}  // namespace zeroth::trainer
