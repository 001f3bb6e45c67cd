// The text that --inspect-samples prints.
#pragma once

#include <string>

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Returns how the data was interpreted, and its first samples in file order, token by token. Uses
// the training samples, or with --eval-only the evaluated ones. Ends with a newline.
std::string inspection(const RunPlan& plan);

}  // namespace zeroth::trainer
