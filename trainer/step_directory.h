// The names of folders in --output that earlier versions saved on the way.
#pragma once

#include <string>

namespace zeroth::trainer {

// "step-N", or as Hugging Face's Trainer has it "checkpoint-N".
bool is_step_directory(const std::string& name);

}  // namespace zeroth::trainer
