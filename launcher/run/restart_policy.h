// Decides which restart attempt of a run (base/restart_attempt.h) follows another one. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/restart_attempt.h"
#include "launcher/run/job_state_machine.h"

namespace zeroth::launcher {

// RestartPolicy decides what follows an attempt.
class RestartPolicy {
 public:
  // `run` is RestartAttempt::run. `max_restarts` is the number of attempts that may follow
  // failed ones.
  RestartPolicy(std::string run, int max_restarts);

  const RestartAttempt& current() const { return current_; }
  // Advances to the next attempt; returns false if none follows. A failure consumes one of the
  // restarts; a usage error of the program (kUsageExitCode) would repeat, so no attempt follows it.
  // A restart for new nodes consumes none. No attempt follows a signal. `cause` is why the attempt
  // ended; empty: the outcome's cause.
  bool try_restart(const JobOutcome& outcome, const std::string& cause = {});
  // Resets the number of restarts, as the run has made progress.
  void reset_restarts() { restarts_ = 0; }
  // Returns "restart 1 of 3"; "no failure, 0 of 3 restarts used" for new nodes.
  std::string describe_restarts() const;
  // Returns the text to add to the message of a run that is not restarted; may be empty.
  std::string no_restart_reason(const JobOutcome& outcome) const;

 private:
  RestartAttempt current_;
  int max_restarts_;
  int restarts_ = 0;
};

// Returns the exit status. It is `requeue_code`, if set, for a run stopped by SIGTERM: the run can
// resume from its checkpoint.
int to_exit_code(const JobOutcome& outcome, std::optional<int> requeue_code);

}  // namespace zeroth::launcher
