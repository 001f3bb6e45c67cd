// Runs a job on hosts from its start to its end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/gathering.h"
#include "launcher/run/job_shell.h"

namespace zeroth::launcher {

struct HostsLaunch {
  // With whom and what; `say` gets lines for the user until ranks run.
  GatheringRequest gathering;
  std::string master_addr = {};  // empty: what reaches rank 0's host; the port: see RemoteJob
  double launch_time = 0;        // seconds since the epoch when the launcher began
  std::optional<int> terminal_columns = {};  // of standard output; empty: not a terminal
  // Ranks are counted here. Where rank_logs are wanted there is one for each rank.
  JobShellOptions shell = {};
};

// Starts the agents, and through them the ranks, as job_shell.h and job.h have it on one machine;
// ranks have no input. A lost host ends the job like a rank that fails, with status 1. Returns when
// no rank is left on any host that is not lost, and no process that started an agent. Throws an
// Error that names all hosts that cannot run their ranks; then none has started.
JobOutcome launch_on_hosts(const HostsLaunch& launch);

}  // namespace zeroth::launcher
