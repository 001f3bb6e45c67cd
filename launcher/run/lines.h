// A stream of bytes cut into lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace zeroth::launcher {

enum class LineEnd { kNewline, kReturn };

class LineSplitter {
 public:
  // `text` is without its end and lives during the call only.
  using Sink = std::function<void(std::string_view text, LineEnd end)>;

  // A line that grows beyond this is cut there.
  static constexpr size_t kMaxLineBytes = size_t{1} << 20;

  // With `split_returns` a '\r' ends a line too (kReturn), as progress lines on a terminal do;
  // empty ones are left out, and a '\n' right after it hands the same text out as a line. Otherwise
  // '\r' is an ordinary character.
  explicit LineSplitter(bool split_returns) : split_returns_(split_returns) {}

  void feed(std::string_view bytes, const Sink& sink);

  // Hands out what has no end yet, as a line.
  void flush(const Sink& sink);

 private:
  void end_line(const Sink& sink);
  void end_return(const Sink& sink);

  bool split_returns_;
  std::string partial_;
  std::string returned_;  // the last kReturn text, until anything follows it
};

}  // namespace zeroth::launcher
