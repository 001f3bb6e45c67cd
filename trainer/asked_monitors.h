// The monitors that --report_to asks for, beside those of the configuration.
#pragma once

#include <string>

#include "configs/resolve.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {

// One that the configuration has on already stays as it is there. Without --logging_dir the others
// write into a folder of this run in OUTPUT/runs, as Trainer's.
void switch_monitors_on(const Flags& flags, configs::Resolved& resolved);

// The folder of this run in OUTPUT/runs, by its name; empty where no monitor writes there.
std::string run_name(const Flags& flags, const configs::Config& config,
                     const configs::Origins& origins);

}  // namespace zeroth::trainer
