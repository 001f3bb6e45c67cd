// Throttling of log lines that repeat.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace zeroth::launcher {

// LogThrottle passes a line, and passes the same one again only after a pause, which doubles from a
// minute to an hour. It reads no clock: the caller passes the time.
class LogThrottle {
 public:
  // Returns the line to log at the time `now`, with the number of times it was suppressed since the
  // last one; empty if it repeats too soon.
  std::optional<std::string> pass(const std::string& line, std::chrono::milliseconds now);

 private:
  struct ThrottledLine {
    std::chrono::milliseconds last, pause;
    int held_back = 0;
  };

  std::map<std::string, ThrottledLine> lines_;
};

}  // namespace zeroth::launcher
