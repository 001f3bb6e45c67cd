// The monitors that --report_to asks for, beside those of the configuration.
#pragma once

#include <string>

#include "configs/resolve.h"
#include "monitor/monitors.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {

struct RequestedMonitors {
  monitor::TrainerEventFiles tensorboard;
  std::string run_name;  // of this run's folder in OUTPUT/runs; empty: no monitor writes there
};

// Without --logging_dir they write into a folder of this run in OUTPUT/runs, as Trainer's. For a
// service, which is not reached from here, files are written and a warning in `resolved` says so,
// whether --report_to names it or the configuration has it on. CSV files are csv_monitor's, which
// stays as it is where the configuration has it on already. `resumes`: the folder will be that of
// an earlier try.
RequestedMonitors request_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved);

}  // namespace zeroth::trainer
