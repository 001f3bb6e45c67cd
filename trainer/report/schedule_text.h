// What the summary says of the learning rate, and of whose defaults a run has.
#pragma once

#include <string>

#include "configs/config.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

std::string schedule_text(const configs::SchedulerConfig& scheduler);

// Which of Trainer's defaults count, where the command line is spelled for it; else empty.
std::string defaults_line(const RunPlan& plan);

}  // namespace zeroth::trainer
