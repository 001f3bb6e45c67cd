#include "launcher/run/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kError = "error";

}  // namespace

const Death& find_cause(std::span<const Death> deaths, std::chrono::milliseconds window) {
  ZEROTH_CHECK(!deaths.empty(), "no rank died");
  for (const Death& death : deaths) {
    if (death.since_first <= window && death.ending.by_signal && !death.ours) return death;
  }
  return deaths.front();
}

std::string describe(Ending ending) {
  return ending.by_signal ? fmt::format("was killed by {}", signal_name(ending.number))
                          : fmt::format("ended with exit code {}", ending.number);
}

int exit_status(Ending ending) {
  return ending.by_signal ? 128 + ending.number : ending.number;
}

bool obeyed(Ending ending, int signal) {
  return !ending.failed() || exit_status(ending) == 128 + signal;
}

std::string describe_death(const Death& death) {
  if (!death.lost.empty())
    return fmt::format("host {} is lost: {}; rank {} ran there", death.host, death.lost,
                       death.rank);
  const std::string host = death.host.empty() ? "" : fmt::format(" on host {}", death.host);
  const std::string reason = death.reason.empty() ? "" : fmt::format(" ({})", death.reason);
  return fmt::format("rank {}{} {}{}", death.rank, host, describe(death.ending), reason);
}

std::string describe_cause(const Death& death, const std::deque<std::string>& lines) {
  const bool by_others =
      death.ending.by_signal && (death.ending.number == SIGKILL || death.ending.number == SIGTERM);
  if (by_others || !death.lost.empty()) return describe_death(death);
  std::string said;
  bool of_error = false;
  for (const std::string& line : lines) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    const bool error =
        std::search(line.begin(), line.end(), kError.begin(), kError.end(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == b;
        }) != line.end();
    if (of_error && !error) continue;
    of_error = error;
    said = line.substr(begin);
  }
  return describe_death(death) + (said.empty() ? "" : ": " + said);
}

std::string describe_last_lines(const std::deque<std::string>& lines) {
  if (lines.empty()) return "; it had printed nothing";
  std::string text = "; its last lines:";
  for (const std::string& line : lines) text += "\n  | " + line;
  return text;
}

}  // namespace zeroth::launcher
