// A round is one life of the ranks of a run. One that fails may be followed by another, which goes
// on from what was saved. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/run/job_state_machine.h"

namespace zeroth::launcher {

struct RestartAttempt {
  std::string run_id =
      {};         // 16 hexadecimal digits, the same in all rounds; empty: there is one only
  int index = 0;  // from 0
  std::string cause = {};  // why the round before has ended, in one line

  bool operator==(const RestartAttempt&) const = default;
};

// What ranks are told of it: ZEROTH_RUN, ZEROTH_ROUND and, in all but the first,
// ZEROTH_ROUND_CAUSE.
std::vector<std::pair<std::string, std::string>> restart_variables(const RestartAttempt& attempt);

// Decides what follows a round.
class RestartPolicy {
 public:
  // `run`: see RestartAttempt. `max_restarts`: rounds that may follow failed ones.
  RestartPolicy(std::string run, int max_restarts);

  const RestartAttempt& current() const { return current_; }
  // Goes on to the next round where there is one. A failure takes one of the restarts, unless the
  // program said that what it was told is wrong (kUsageExitCode): that stays so. New hosts take
  // none. None follows where a signal came. `cause`: why the round has ended, or empty: what the
  // outcome says.
  bool start_next(const JobOutcome& outcome, const std::string& cause = {});
  // Sets the count of restarts to 0, as the run has made progress.
  void reset_restarts() { restarts_ = 0; }
  // "restart 1 of 3"; "no failure, 0 of 3 restarts taken" where hosts came.
  std::string describe_restarts() const;
  // What to add to the message of a run that is not started again; empty: nothing.
  std::string no_restart_reason(const JobOutcome& outcome) const;

 private:
  RestartAttempt current_;
  int max_restarts_;
  int restarts_ = 0;
};

// The status to exit with: of a run that SIGTERM has stopped it is `requeue_code`, where there is
// one: what was saved can be gone on from.
int to_exit_code(const JobOutcome& outcome, std::optional<int> requeue_code);

}  // namespace zeroth::launcher
