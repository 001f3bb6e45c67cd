// Detection of a finished run that is started again.
#pragma once

#include <string>

namespace zeroth::trainer {

struct RunPlan;

// Returns the message for a run that resumes from the checkpoint of its last step and has nothing
// left to do: its evaluation is known, and its model and results are in --output. Returns an empty
// text if something is left to do.
std::string finished_message(const RunPlan& plan);

}  // namespace zeroth::trainer
