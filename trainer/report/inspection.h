// What --inspect-samples prints.
#pragma once

#include <string>

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// How the data was understood, and its first samples in the order of the file, token by token. Of
// the training samples, or with --eval-only of those that are evaluated. Ends with a line end.
std::string inspection(const RunPlan& plan);

}  // namespace zeroth::trainer
