// Lines that say the same again and again.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace zeroth::launcher {

// Lets a line through, and the same one again only after a pause, which doubles from a minute to an
// hour. Reads no clock: the caller passes the time.
class LogThrottle {
 public:
  // Returns the line to log at the time `now`, with how often it was held back since the last one;
  // nothing where it has come too soon.
  std::optional<std::string> pass(const std::string& line, std::chrono::milliseconds now);

 private:
  struct ThrottledLine {
    std::chrono::milliseconds last, pause;
    int held_back = 0;
  };

  std::map<std::string, ThrottledLine> lines_;
};

}  // namespace zeroth::launcher
