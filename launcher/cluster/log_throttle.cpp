#include "launcher/cluster/log_throttle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirst{60'000}, kMaxPause{3'600'000};
constexpr size_t kMaxLines = 1000;

}  // namespace

std::optional<std::string> LogThrottle::pass(const std::string& line, milliseconds now) {
  if (lines_.size() >= kMaxLines) lines_.clear();
  const auto [found, is_new] = lines_.emplace(line, ThrottledLine{now, kFirst});
  if (is_new) return line;
  ThrottledLine& known = found->second;
  if (now - known.last < known.pause) {
    ++known.held_back;
    return std::nullopt;
  }
  known.last = now;
  known.pause = std::min(2 * known.pause, kMaxPause);
  const int held_back = std::exchange(known.held_back, 0);
  if (held_back == 0) return line;
  return fmt::format("{} (and {} more times since)", line, held_back);
}

}  // namespace zeroth::launcher
