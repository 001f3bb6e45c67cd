// Runs the ranks of one job from start to end.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

#include "launcher/run/job_state_machine.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"

namespace zeroth::launcher {

struct SupervisorOptions {
  JobOptions job = {};
  bool unprefixed_lines = false;                // without the ranks' numbers before them
  bool progress_on_terminal = false;            // rank 0 redraws its progress line with '\r'
  int world_size = 0;                           // ranks on all nodes; 0: the number of `ranks`
  std::vector<int> rank_logs = {};              // an open file per rank, not owned; empty: none
  std::filesystem::path system_root = "/";      // see oom_watch.h
  std::chrono::milliseconds output_grace{500};  // for output that a process holds open
};

// Starts all ranks, passes on their output, and returns when no rank or descendant is left. A rank
// that fails ends the others (SIGTERM at once, SIGKILL after failure_grace, which also ends a
// suspended one) and determines the status: its exit code, or 128 + signal. SIGINT, SIGTERM and
// SIGHUP are forwarded (JobRanks::signal), and the status is 128 + signal unless all ranks still
// end with 0; a second signal, and any after a rank has failed, kills. A rank that fails meanwhile
// reduces signal_grace to failure_grace. SIGTSTP (Ctrl-Z) stops the ranks with the launcher until
// it is continued; time limits do not count this time. Ranks suspended by another process are
// reported. A standard output that fails or has lost its reader, and a rank log that cannot be
// written, are given up with a warning, and the job continues; with output_required a lost standard
// output gives status 1, or SIGPIPE's without a message. Ranks also die with the calling thread,
// which must be the main thread; their descendants die with the calling process, whose children
// must all belong to the job. Throws ProgramError or Error if a rank cannot be started; then no
// rank is left either.
JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options);

}  // namespace zeroth::launcher
