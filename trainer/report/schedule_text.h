// Lines of the summary about the learning rate and about Trainer's defaults.
#pragma once

#include <string>

#include "configs/config.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

std::string schedule_text(const configs::SchedulerConfig& scheduler);

// Returns which of Trainer's defaults apply if the command line is spelled for Trainer; otherwise
// empty.
std::string defaults_line(const RunPlan& plan);

}  // namespace zeroth::trainer
