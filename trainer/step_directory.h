// Names of directories in --output that earlier versions saved during a run.
#pragma once

#include <string>

namespace zeroth::trainer {

// Returns whether the name is "step-N", or as in Hugging Face's Trainer "checkpoint-N".
bool is_step_directory(const std::string& name);

}  // namespace zeroth::trainer
