// The course of one job, from its first rank to its last: what is to be done when
// something happens. Pure: it knows no process, no clock and no terminal (supervisor.h has these).
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
  std::string host = {};  // where it runs; empty: here

  bool operator==(const SuspendedRank&) const = default;
};

// A job that stands still must not look like one that works.
class SuspendedRanksReporter {
 public:
  // What to say of those that are stopped now, out of `running` ranks; empty where nothing has
  // changed since the last call.
  std::string report(const std::vector<SuspendedRank>& stopped, size_t running);

  bool any() const { return !reported_.empty(); }

 private:
  std::vector<SuspendedRank> reported_;
};

struct JobOptions {
  bool quiet = false;                             // no word while it waits for ranks after a signal
  bool output_required = false;                   // ranks only print: it must not get lost
  std::chrono::milliseconds cause_window{200};    // deaths this close to the first may be its cause
  std::chrono::milliseconds failure_grace{3000};  // from SIGTERM to SIGKILL after a rank has failed
  std::chrono::milliseconds signal_grace{300'000};  // from a forwarded signal to SIGKILL
};

// How a job came to its end.
enum class JobEnd {
  kFinished,          // all ranks ended with 0
  kFailed,            // a rank did not, or what they print was all, and is lost
  kStopped,           // by a signal to the launcher
  kRestartRequested,  // as RestartRequest asks for
};

struct JobOutcome {
  int status = 0;            // to exit with
  std::string message = {};  // for a person; empty where there is nothing to say
  JobEnd end = JobEnd::kFinished;
  int signal = 0;          // that stopped it, or came when it was ending anyway; 0: none
  std::string cause = {};  // of a failure, in one line: describe_root_cause()
};

// What happens.
struct RankExit {
  int rank = 0;
  ExitStatus exit_status;
  std::string reason = {};  // as RankFailure has it, and these
  std::string host = {};
  std::string lost_reason = {};
};
struct RanksPolled {  // some have ended, or been stopped, or go on; either list may be empty
  std::vector<RankExit> ended;
  std::vector<SuspendedRank> stopped;  // those that are now
};
struct SuspendedRanksPolled {  // looked at again, after PollSuspendedRanks's time
  std::vector<SuspendedRank> stopped;
};
struct SignalReceived {
  int signal = 0;
};
struct RestartRequest {  // the ranks are to run anew, on other hosts: they save and end
  std::string why;
};
struct GracePeriodOver {};  // StartGracePeriod's time
struct OutputLost {
  int error = 0;  // errno
};
using JobEvent = std::variant<RanksPolled, SuspendedRanksPolled, SignalReceived, RestartRequest,
                              GracePeriodOver, OutputLost>;

// What is to be done then, in order.
struct LogLine {
  std::string text;
  bool operator==(const LogLine&) const = default;
};
struct SignalRanks {  // those that run
  int signal = 0;
  bool operator==(const SignalRanks&) const = default;
};
struct StartGracePeriod {  // GracePeriodOver after it; the one granted before is void
  std::chrono::milliseconds time;
  bool operator==(const StartGracePeriod&) const = default;
};
struct PollSuspendedRanks {  // SuspendedRanksPolled after it; what was asked for before is void
  std::chrono::milliseconds time;
  bool operator==(const PollSuspendedRanks&) const = default;
};
struct DrainOutput {  // no rank is left: what they printed goes out yet
  bool operator==(const DrainOutput&) const = default;
};
struct ExitNow {  // nobody wants to wait for that
  bool operator==(const ExitNow&) const = default;
};
using JobAction =
    std::variant<LogLine, SignalRanks, StartGracePeriod, PollSuspendedRanks, DrainOutput, ExitNow>;

class JobStateMachine {
 public:
  JobStateMachine(size_t num_ranks, const JobOptions& options);

  // `now`: of any clock that only goes forward.
  std::vector<JobAction> on(const JobEvent& event, std::chrono::milliseconds now);

  bool is_running(int rank) const { return !endings_[static_cast<size_t>(rank)]; }
  // Ranks that end from now on were killed by us.
  bool is_killing() const { return phase_ == JobPhase::kKilled; }
  // No rank is left.
  bool is_finishing() const { return finishing_; }

  // When all ranks have ended. `to_message`: a death with what the rank said last. `oom_kills`:
  // processes that the kernel ended for want of memory and that no reason has named yet; empty
  // where nothing counts them.
  JobOutcome outcome(const std::function<std::string(const RankFailure&)>& to_message,
                     std::optional<int64_t> oom_kills) const;
  // The death to report; null where no rank failed.
  const RankFailure* cause() const;

 private:
  // Each has less time than the one before.
  enum class JobPhase {
    kRunning,
    kStopping,  // all ranks have been told to end, and may take signal_grace
    kHurried,   // failure_grace
    kKilled,
  };
  using JobActions = std::vector<JobAction>;

  JobActions handle(const RanksPolled& event, std::chrono::milliseconds now);
  JobActions handle(const SuspendedRanksPolled& event, std::chrono::milliseconds now);
  JobActions handle(const SignalReceived& event, std::chrono::milliseconds now);
  JobActions handle(const RestartRequest& event, std::chrono::milliseconds now);
  JobActions handle(const GracePeriodOver& event, std::chrono::milliseconds now);
  JobActions handle(const OutputLost& event, std::chrono::milliseconds now);

  void record_exit(const RankExit& ended, std::chrono::milliseconds now);
  JobActions on_failures(std::span<const RankFailure> fresh,
                         const std::vector<SuspendedRank>& stopped);
  JobActions stop_ranks(int signal, const std::string& text);
  JobActions kill();
  bool is_from_launcher(ExitStatus exit_status) const;
  bool is_unexpected(const RankFailure& failure) const;
  size_t running() const;
  JobOutcome output_lost() const;
  JobOutcome stopped(const std::function<std::string(const RankFailure&)>& to_message) const;
  JobOutcome failed(const std::function<std::string(const RankFailure&)>& to_message,
                    std::optional<int64_t> oom_kills) const;

  JobOptions options_;
  JobPhase phase_ = JobPhase::kRunning;
  bool finishing_ = false;
  std::vector<std::optional<ExitStatus>> endings_;
  std::vector<RankFailure> failures_;
  std::chrono::milliseconds first_failure_{0};
  SuspendedRanksReporter suspended_reporter_;
  std::string suspended_note_;  // ranks that could not take part when another one failed
  int stop_signal_ = 0;         // from outside; 0: none came before a rank failed
  int last_signal_ = 0;         // the same, at any time
  bool restart_requested_ = false;
  std::chrono::milliseconds stop_time_{0};
  int sent_signal_ = 0;   // what ranks were last told to end by
  int output_error_ = 0;  // 0: all was written
};

}  // namespace zeroth::launcher
