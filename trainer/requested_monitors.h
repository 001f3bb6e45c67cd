// The monitors that --report_to requests, in addition to those of the configuration.
#pragma once

#include <string>

#include "configs/resolve.h"
#include "monitor/monitors.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {

struct RequestedMonitors {
  monitor::TrainerEventFiles tensorboard;
  std::string run_name;  // this run's directory name in OUTPUT/runs; empty: no monitor writes there
};

// Returns the requested monitors. Without --logging_dir they write into a directory of this run in
// OUTPUT/runs, as Trainer's do. A service, which cannot be reached from here, is replaced by files,
// and a warning in `resolved` reports that, whether --report_to names it or the configuration
// enables it. CSV files are csv_monitor's, which stays unchanged if the configuration enables it
// already. `resumes`: the directory will be that of an earlier attempt.
RequestedMonitors request_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved);

}  // namespace zeroth::trainer
