// A run that has come to its end, and is started again.
#pragma once

#include <string>

namespace zeroth::trainer {

struct RunPlan;

// What is told of a run that goes on from the checkpoint of its last step, whose evaluation is
// known and whose model and results stand in --output: then nothing is left to do. Empty: something
// is.
std::string finished_text(const RunPlan& plan);

}  // namespace zeroth::trainer
