// The names of the folders in --output that are saved on the way.
#pragma once

#include <cstdint>
#include <string>

namespace zeroth::trainer {

// "step-N", or as Hugging Face's Trainer has it "checkpoint-N", under which other tools look.
std::string step_folder(int64_t step, bool for_trainer);

// Whether it is a name of either kind.
bool is_step_folder(const std::string& name);

}  // namespace zeroth::trainer
