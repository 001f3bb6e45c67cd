#include "launcher/run/exit_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/text/units.h"

namespace zeroth::launcher {

const RankFailure& find_root_cause(std::span<const RankFailure> failures,
                                   std::chrono::milliseconds window) {
  ZEROTH_CHECK(!failures.empty(), "no rank died");
  for (const RankFailure& failure : failures) {
    if (failure.since_first <= window && failure.exit_status.by_signal && !failure.by_launcher)
      return failure;
  }
  return failures.front();
}

std::string describe(ExitStatus exit_status) {
  return exit_status.by_signal ? fmt::format("was killed by {}", signal_name(exit_status.code))
                               : fmt::format("ended with exit code {}", exit_status.code);
}

int to_exit_code(ExitStatus exit_status) {
  return exit_status.by_signal ? 128 + exit_status.code : exit_status.code;
}

bool is_requested_exit(ExitStatus exit_status, int signal) {
  return !exit_status.failed() || to_exit_code(exit_status) == 128 + signal;
}

std::string describe_failure(const RankFailure& failure) {
  if (!failure.lost_reason.empty())
    return fmt::format("host {} is lost: {}; rank {} ran there", failure.host, failure.lost_reason,
                       failure.rank);
  const std::string host = failure.host.empty() ? "" : fmt::format(" on host {}", failure.host);
  const std::string reason = failure.reason.empty() ? "" : fmt::format(" ({})", failure.reason);
  return fmt::format("rank {}{} {}{}", failure.rank, host, describe(failure.exit_status), reason);
}

std::string describe_root_cause(const RankFailure& failure, const std::deque<std::string>& lines) {
  const bool by_others = failure.exit_status.by_signal && (failure.exit_status.code == SIGKILL ||
                                                           failure.exit_status.code == SIGTERM);
  if (by_others || !failure.lost_reason.empty()) return describe_failure(failure);
  constexpr std::string_view kError = "error";
  std::string reason_line;
  bool has_error = false;
  for (const std::string& line : lines) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    const bool error =
        std::search(line.begin(), line.end(), kError.begin(), kError.end(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == b;
        }) != line.end();
    if (has_error && !error) continue;
    has_error = error;
    reason_line = line.substr(begin);
  }
  return describe_failure(failure) + (reason_line.empty() ? "" : ": " + reason_line);
}

std::string describe_last_lines(const std::deque<std::string>& lines) {
  if (lines.empty()) return "; it had printed nothing";
  std::string text = "; its last lines:";
  for (const std::string& line : lines) text += "\n  | " + line;
  return text;
}

}  // namespace zeroth::launcher
