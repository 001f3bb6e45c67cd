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

#include "launcher/run/verdict.h"

namespace zeroth::launcher {

struct StoppedRank {  // by SIGSTOP or a debugger
  int rank = 0;
  pid_t pid = 0;
  std::string host = {};  // where it runs; empty: here

  bool operator==(const StoppedRank&) const = default;
};

// A job that stands still must not look like one that works.
class StoppedRanks {
 public:
  // What to say of those that are stopped now, out of `running` ranks; empty where nothing has
  // changed since the last call.
  std::string tell(const std::vector<StoppedRank>& stopped, size_t running);

  bool any() const { return !told_.empty(); }

 private:
  std::vector<StoppedRank> told_;
};

struct JobOptions {
  bool quiet = false;                             // no word while it waits for ranks after a signal
  bool output_is_all = false;                     // ranks only print: it must not get lost
  std::chrono::milliseconds same_failure{200};    // deaths this close to the first may be its cause
  std::chrono::milliseconds failure_grace{3000};  // from SIGTERM to SIGKILL after a rank has failed
  std::chrono::milliseconds signal_grace{300'000};  // from a forwarded signal to SIGKILL
};

// How a job came to its end.
enum class JobEnd {
  kFinished,   // all ranks ended with 0
  kFailed,     // a rank did not, or what they print was all, and is lost
  kStopped,    // by a signal to the launcher
  kRegrouped,  // as Regroup asks for
};

struct JobOutcome {
  int status = 0;            // to exit with
  std::string message = {};  // for a person; empty where there is nothing to say
  JobEnd end = JobEnd::kFinished;
  int signal = 0;          // that stopped it, or came when it was ending anyway; 0: none
  std::string cause = {};  // of a failure, in one line: describe_cause()
};

// What happens.
struct RankEnded {
  int rank = 0;
  Ending ending;
  std::string reason = {};  // as Death has it, and these
  std::string host = {};
  std::string lost = {};
};
struct RanksLookedAt {  // some have ended, or been stopped, or go on; either list may be empty
  std::vector<RankEnded> ended;
  std::vector<StoppedRank> stopped;  // those that are now
};
struct StillStopped {  // looked at again, after LookForStopped's time
  std::vector<StoppedRank> stopped;
};
struct Signalled {
  int signal = 0;
};
struct Regroup {  // the ranks are to run anew, on other hosts: they save and end
  std::string why;
};
struct GraceOver {};  // Grant's time
struct OutputLost {
  int error = 0;  // errno
};
using JobEvent =
    std::variant<RanksLookedAt, StillStopped, Signalled, Regroup, GraceOver, OutputLost>;

// What is to be done then, in order.
struct Say {
  std::string text;
  bool operator==(const Say&) const = default;
};
struct SignalRanks {  // those that run
  int signal = 0;
  bool operator==(const SignalRanks&) const = default;
};
struct Grant {  // GraceOver after it; the one granted before is void
  std::chrono::milliseconds time;
  bool operator==(const Grant&) const = default;
};
struct LookForStopped {  // StillStopped after it; what was asked for before is void
  std::chrono::milliseconds time;
  bool operator==(const LookForStopped&) const = default;
};
struct Finish {  // no rank is left: what they printed goes out yet
  bool operator==(const Finish&) const = default;
};
struct Leave {  // nobody wants to wait for that
  bool operator==(const Leave&) const = default;
};
using JobAction = std::variant<Say, SignalRanks, Grant, LookForStopped, Finish, Leave>;

class Job {
 public:
  Job(size_t num_ranks, const JobOptions& options);

  // `now`: of any clock that only goes forward.
  std::vector<JobAction> on(const JobEvent& event, std::chrono::milliseconds now);

  bool runs(int rank) const { return !endings_[static_cast<size_t>(rank)]; }
  // Ranks that end from now on were killed by us.
  bool kills() const { return phase_ == Phase::kKilled; }
  // No rank is left.
  bool finishing() const { return finishing_; }

  // When all ranks have ended. `tell`: a death with what the rank said last. `oom_kills`: processes
  // that the kernel ended for want of memory and that no reason has named yet; empty where nothing
  // counts them.
  JobOutcome outcome(const std::function<std::string(const Death&)>& tell,
                     std::optional<int64_t> oom_kills) const;
  // The death to report; null where no rank failed.
  const Death* cause() const;

 private:
  // Each has less time than the one before.
  enum class Phase {
    kRunning,
    kStopping,  // all ranks have been told to end, and may take signal_grace
    kHurried,   // failure_grace
    kKilled,
  };
  using Actions = std::vector<JobAction>;

  Actions react(const RanksLookedAt& event, std::chrono::milliseconds now);
  Actions react(const StillStopped& event, std::chrono::milliseconds now);
  Actions react(const Signalled& event, std::chrono::milliseconds now);
  Actions react(const Regroup& event, std::chrono::milliseconds now);
  Actions react(const GraceOver& event, std::chrono::milliseconds now);
  Actions react(const OutputLost& event, std::chrono::milliseconds now);

  void note(const RankEnded& ended, std::chrono::milliseconds now);
  Actions on_failures(std::span<const Death> fresh, const std::vector<StoppedRank>& stopped);
  Actions stop_ranks(int signal, const std::string& words);
  Actions kill();
  bool is_ours(Ending ending) const;
  bool is_unforeseen(const Death& death) const;
  size_t running() const;
  JobOutcome output_lost() const;
  JobOutcome stopped(const std::function<std::string(const Death&)>& tell) const;
  JobOutcome failed(const std::function<std::string(const Death&)>& tell,
                    std::optional<int64_t> oom_kills) const;

  JobOptions options_;
  Phase phase_ = Phase::kRunning;
  bool finishing_ = false;
  std::vector<std::optional<Ending>> endings_;
  std::vector<Death> deaths_;
  std::chrono::milliseconds first_death_{0};
  StoppedRanks told_stopped_;
  std::string stopped_meanwhile_;  // ranks that could not take part when another one failed
  int stop_signal_ = 0;            // from outside; 0: none came before a rank failed
  int last_signal_ = 0;            // the same, at any time
  bool regroups_ = false;
  std::chrono::milliseconds stop_time_{0};
  int told_signal_ = 0;   // what ranks were last told to end by
  int output_error_ = 0;  // 0: all was written
};

}  // namespace zeroth::launcher
