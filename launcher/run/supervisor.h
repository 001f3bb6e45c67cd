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
  int world_size = 0;                           // ranks on all hosts; 0: those that are started
  std::vector<int> rank_logs = {};              // an open file per rank, not owned; empty: none
  std::filesystem::path system_root = "/";      // see oom_watch.h
  std::chrono::milliseconds output_grace{500};  // for output that a process holds open
};

// Starts all ranks, passes their output on, and returns when none is left, nor any process that
// they started. A rank that fails ends the others (SIGTERM at once, SIGKILL after failure_grace,
// which also ends one that is stopped) and gives the status: its exit code, or 128 + signal.
// SIGINT, SIGTERM and SIGHUP are forwarded (JobRanks::signal), and give 128 + signal unless all
// ranks still end with 0; a second one, and any after a rank has failed, kills. A rank that fails
// meanwhile cuts signal_grace to failure_grace. SIGTSTP (Ctrl-Z) stops the ranks with the launcher
// until that is continued; no limit counts time in which it is stopped. Ranks that somebody else
// stops are named. Standard output that fails, or has lost its reader, and a rank log that
// cannot be written are given up with a warning, and the job goes on; with output_required a lost
// standard output gives status 1, or SIGPIPE's without a word. Ranks also die with the calling
// thread, which must be the main thread, and what they started with the calling process, whose
// children all belong to the job. Throws ProgramError or Error if a rank cannot be started; then
// none is left either.
JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options);

}  // namespace zeroth::launcher
