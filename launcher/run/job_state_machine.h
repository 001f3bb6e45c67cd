// The state machine of one job, from its first rank to its last: it maps events to actions. Pure:
// it accesses no process, clock or terminal (job_runner.h does).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/run/exit_status.h"

namespace zeroth::launcher {

struct SuspendedRank {  // by SIGSTOP or a debugger
  int rank = 0;
  pid_t pid = 0;
  std::string host = {};  // where it runs; empty: this machine

  bool operator==(const SuspendedRank&) const = default;
};

// SuspendedRanksReporter reports suspended ranks, so that a suspended job does not look like a
// working one.
class SuspendedRanksReporter {
 public:
  // Describes the ranks that are suspended now, out of `running` ranks; empty if nothing has
  // changed since the last call.
  std::string report(const std::vector<SuspendedRank>& stopped, size_t running);

  bool any() const { return !reported_.empty(); }

 private:
  std::vector<SuspendedRank> reported_;
};

struct JobOptions {
  bool quiet = false;            // no message while it waits for ranks after a signal
  bool output_required = false;  // the output is all that ranks produce: it must not be lost
  std::chrono::milliseconds cause_window{200};  // failures this close to the first may be its cause
  std::chrono::milliseconds failure_grace{3000};  // from SIGTERM to SIGKILL after a rank has failed
  std::chrono::milliseconds signal_grace{300'000};  // from a forwarded signal to SIGKILL
};

// JobEnd is how a job ended.
enum class JobEnd {
  kFinished,          // all ranks ended with 0
  kFailed,            // a rank failed, or required output is lost
  kStopped,           // by a signal to the launcher
  kRestartRequested,  // see RestartRequest
};

struct JobOutcome {
  int status = 0;            // exit status
  std::string message = {};  // for a person; may be empty
  JobEnd end = JobEnd::kFinished;
  int signal = 0;          // that stopped it, or arrived while it was ending; 0: none
  std::string cause = {};  // of a failure, in one line: describe_root_cause()
};
// Returns the outcome of a job that a signal to the launcher has stopped.
JobOutcome stopped_by(int signal);

// The events follow.
struct RanksPolled {  // ranks ended, were stopped or resumed; either list may be empty
  std::vector<RankExit> ended;
  std::vector<SuspendedRank> stopped;  // suspended now
};
struct SuspendedRanksPolled {  // polled after PollSuspendedRanks's time
  std::vector<SuspendedRank> stopped;
};
struct SignalReceived {
  int signal = 0;
};
struct RestartRequest {  // ranks save and exit, to be restarted on other nodes
  std::string why;
};
struct GracePeriodOver {};  // StartGracePeriod's time is over
struct OutputLost {
  int error = 0;  // errno
};
using JobEvent = std::variant<RanksPolled, SuspendedRanksPolled, SignalReceived, RestartRequest,
                              GracePeriodOver, OutputLost>;

// The actions follow; they are executed in order.
struct LogLine {
  std::string text;
  bool operator==(const LogLine&) const = default;
};
struct SignalRanks {  // the running ranks
  int signal = 0;
  bool operator==(const SignalRanks&) const = default;
};
struct StartGracePeriod {  // GracePeriodOver follows; replaces an earlier period
  std::chrono::milliseconds time;
  bool operator==(const StartGracePeriod&) const = default;
};
struct PollSuspendedRanks {  // SuspendedRanksPolled follows; replaces an earlier request
  std::chrono::milliseconds time;
  bool operator==(const PollSuspendedRanks&) const = default;
};
struct DrainOutput {  // no rank is left: pass on their remaining output
  bool operator==(const DrainOutput&) const = default;
};
struct ExitNow {  // skip the remaining output
  bool operator==(const ExitNow&) const = default;
};
using JobAction =
    std::variant<LogLine, SignalRanks, StartGracePeriod, PollSuspendedRanks, DrainOutput, ExitNow>;

class JobStateMachine {
 public:
  JobStateMachine(size_t num_ranks, const JobOptions& options);

  // Handles an event at the time `now` of a monotonic clock; returns the actions.
  std::vector<JobAction> on(const JobEvent& event, std::chrono::milliseconds now);

  // Returns the outcome after all ranks have ended. `to_message` describes a failure with the
  // rank's last lines. `oom_kills` is the number of processes killed by the kernel's OOM killer
  // that no exit reason mentions; empty if nothing counts them.
  using ToMessage = std::function<std::string(const RankFailure&)>;
  JobOutcome outcome(const ToMessage& to_message, std::optional<int64_t> oom_kills) const;
  // Returns the failure to report; null if no rank failed.
  const RankFailure* cause() const;

 private:
  // Each phase allows less time than the one before.
  enum class JobPhase {
    kRunning,
    kStopping,  // all ranks received a signal to exit, within signal_grace
    kHurried,   // within failure_grace
    kKilled,
  };
  using JobActions = std::vector<JobAction>;

  JobActions handle(const RanksPolled& event);
  JobActions handle(const SuspendedRanksPolled& event);
  JobActions handle(const SignalReceived& event);
  JobActions handle(const RestartRequest& event);
  JobActions handle(const GracePeriodOver& event);
  JobActions handle(const OutputLost& event);

  void record_exit(const RankExit& ended);
  JobActions on_failures(std::span<const RankFailure> fresh,
                         const std::vector<SuspendedRank>& stopped);
  JobActions stop_ranks(int signal, const std::string& text);
  JobActions kill();
  bool is_from_launcher(ExitStatus exit_status) const;
  bool is_unexpected(const RankFailure& failure) const;
  JobOutcome output_lost() const;
  JobOutcome stopped(const ToMessage& to_message) const;
  JobOutcome failed(const ToMessage& to_message, std::optional<int64_t> oom_kills) const;

  JobOptions options_;
  std::chrono::milliseconds now_{0};  // when the current event happened
  JobPhase phase_ = JobPhase::kRunning;
  bool finishing_ = false;
  size_t num_running_;
  std::vector<RankFailure> failures_;
  std::chrono::milliseconds first_failure_{0};
  SuspendedRanksReporter suspended_reporter_;
  std::string suspended_note_;  // ranks that were suspended when another one failed
  int stop_signal_ = 0;         // from outside, before a rank failed; 0: none
  int last_signal_ = 0;         // from outside, at any time; 0: none
  bool restart_requested_ = false;
  std::chrono::milliseconds stop_time_{0};
  int sent_signal_ = 0;   // the last signal sent to end ranks
  int output_error_ = 0;  // 0: all was written
};

}  // namespace zeroth::launcher
