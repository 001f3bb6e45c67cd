// Runs the ranks of one job from start to end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/rank_plan.h"
#include "launcher/rank_process.h"

namespace zeroth::launcher {

struct SupervisorOptions {
  bool progress_on_terminal = false;              // rank 0 redraws its progress line with '\r'
  std::chrono::milliseconds same_failure{200};    // deaths this close to the first may be its cause
  std::chrono::milliseconds failure_grace{3000};  // from SIGTERM to SIGKILL after a rank has failed
  std::chrono::milliseconds signal_grace{30'000};  // from a forwarded signal to SIGKILL
  std::chrono::milliseconds output_grace{500};     // for output that descendants of ranks hold open
};

struct JobOutcome {
  int status = 0;       // to exit with
  std::string message;  // for a person; empty if all ranks ended with 0
};

// Starts all ranks, passes their output on, and returns when none is left. A rank that fails ends
// the others (SIGTERM at once, SIGKILL after failure_grace) and gives the status: its exit code, or
// 128 + signal. SIGINT, SIGTERM and SIGHUP are forwarded and give 128 + signal unless all ranks
// still end with 0; a second one kills. An output that nobody reads any more ends the job like
// SIGPIPE. Ranks also die with the calling thread, which must be the main thread. Throws
// ProgramError or Error if a rank cannot be started; then none is left either.
JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options);

}  // namespace zeroth::launcher
