// Why a job ended: which death was the cause, and how it is told. Pure.
#pragma once

#include <chrono>
#include <deque>
#include <span>
#include <string>

namespace zeroth::launcher {

// How a process ended: with an exit code, or by a signal.
struct ExitStatus {
  bool by_signal = false;
  int code = 0;

  bool failed() const { return by_signal || code != 0; }
  bool operator==(const ExitStatus&) const = default;
};

struct RankFailure {
  int rank = 0;
  ExitStatus exit_status;  // failed
  std::chrono::milliseconds since_first{0};
  bool by_launcher = false;      // by SIGTERM or SIGKILL, which the launcher had sent by then
  std::string reason = {};       // of the ending, where more is known than its number
  std::string host = {};         // where it ran; empty: here
  std::string lost_reason = {};  // not empty: why its host is lost, and nothing known of the ending
};

// The death to report, out of at least one in order of time. Peers of a dead rank often fail too,
// within milliseconds and sometimes seen first: within `window` of the first death a signal beats
// an exit code, except one of our own.
const RankFailure& find_root_cause(std::span<const RankFailure> failures,
                                   std::chrono::milliseconds window);

std::string describe(ExitStatus exit_status);  // "ended with exit code 3", "was killed by SIGKILL"
int to_exit_code(ExitStatus exit_status);      // as a shell has it: the code, or 128 + signal

// Whether a rank that was told to end by `signal` did so: with 0, by that signal, or with the exit
// code that a shell has for it. Anything else is a failure on the way.
bool is_requested_exit(ExitStatus exit_status, int signal);

// What a rank on a lost host counts as ended with.
inline constexpr ExitStatus kLostNodeExit{false, 1};

// The message for a person: rank, host and how.
std::string describe_failure(const RankFailure& failure);

// The same with the line among the rank's last ones that says most of the reason: the last one with
// "error" in it, else the last one. Without any where others ended the rank, or its host is lost.
std::string describe_root_cause(const RankFailure& failure, const std::deque<std::string>& lines);

// What the rank said last, to be put behind describe_failure().
std::string describe_last_lines(const std::deque<std::string>& lines);

}  // namespace zeroth::launcher
