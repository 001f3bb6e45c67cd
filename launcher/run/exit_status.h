// The root cause of a job's end, and its message. Pure.
#pragma once

#include <chrono>
#include <deque>
#include <span>
#include <string>

namespace zeroth::launcher {

// ExitStatus is how a process ended: with an exit code, or by a signal.
struct ExitStatus {
  bool by_signal = false;
  int code = 0;

  bool failed() const { return by_signal || code != 0; }
  bool operator==(const ExitStatus&) const = default;
};

struct RankExit {
  int rank = 0;  // within the whole job
  ExitStatus exit_status;
  std::string reason = {};       // of the exit, if more is known than its code
  std::string host = {};         // where it ran; empty: this machine
  std::string lost_reason = {};  // not empty: why its node is lost, and the exit is unknown
};

struct RankFailure : RankExit {  // its exit status is one that failed()
  std::chrono::milliseconds since_first{0};
  bool by_launcher = false;  // by a SIGTERM or SIGKILL that the launcher had sent
};

// Returns the failure to report, out of at least one in order of time. Peers of a dead rank often
// fail too, within milliseconds, and may be seen first: within `window` of the first failure a
// signal takes precedence over an exit code, except a signal sent by the launcher.
const RankFailure& find_root_cause(std::span<const RankFailure> failures,
                                   std::chrono::milliseconds window);

std::string describe(ExitStatus exit_status);  // "ended with exit code 3", "was killed by SIGKILL"
int to_exit_code(ExitStatus exit_status);      // as in a shell: the code, or 128 + signal

// Returns whether a rank that was sent `signal` exited accordingly: with 0, by that signal, or with
// a shell's exit code for it. Anything else is a failure.
bool is_requested_exit(ExitStatus exit_status, int signal);

// The exit status that a rank on a lost node is assigned.
inline constexpr ExitStatus kLostNodeExit{false, 1};

// Returns the message for a person: rank, node and how it ended.
std::string describe_failure(const RankFailure& failure);

// Returns describe_failure() with the rank's last line that explains most: the last one with
// "error" in it, otherwise the last one. Omits it if another process ended the rank, or if its node
// is lost.
std::string describe_root_cause(const RankFailure& failure, const std::deque<std::string>& lines);

// Returns the rank's last lines, to be appended to describe_failure().
std::string describe_last_lines(const std::deque<std::string>& lines);

}  // namespace zeroth::launcher
