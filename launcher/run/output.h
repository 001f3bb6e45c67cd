// What ranks print, on its way to the launcher's own output: whole lines, prefixed, never blocking
// the launcher.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

enum class LineEnd { kNewline, kReturn };

// Cuts a stream of bytes into lines.
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

// One of the launcher's outputs. Text that a pipe or terminal cannot take now is kept and written
// when it can; files are written at once. Callbacks run in the io_context's thread.
class OutputSink {
 public:
  // `on_broken(errno)` is called once when writing fails (EPIPE: nobody reads any more); later text
  // is dropped.
  OutputSink(boost::asio::io_context& io, int fd, std::function<void(int)> on_broken);

  void write(std::string_view text);
  void write_line(std::string_view text);  // whole lines are counted

  size_t num_lines() const { return num_lines_; }
  bool is_full() const { return pending_.size() > kMaxPendingBytes; }
  bool empty() const { return pending_.empty(); }
  bool is_terminal() const { return is_terminal_; }

  // Calls back once all text is written, which may be at once.
  void when_empty(std::function<void()> callback);

 private:
  static constexpr size_t kMaxPendingBytes = size_t{1} << 20;

  void flush();

  int fd_;
  bool is_terminal_;
  std::optional<boost::asio::posix::stream_descriptor>
      reopened_;  // a non-blocking twin, where there is one
  bool waiting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // a wait may end behind this
  size_t num_lines_ = 0;
  std::string pending_;
  std::vector<std::function<void()>> callbacks_;
  std::function<void(int)> on_broken_;
};

// Both outputs of the launcher, and the progress line that may stand on a terminal.
class Console {
 public:
  // `on_broken(fd, errno)`: of STDOUT_FILENO or STDERR_FILENO, see OutputSink.
  Console(boost::asio::io_context& io, const std::function<void(int, int)>& on_broken);

  void write_line(OutputSink& sink, std::string_view text);
  void write_progress(std::string_view text);  // to `out`; the next line or progress replaces it
  void keep_progress();                        // what stands there stays

  OutputSink& out() { return out_; }
  OutputSink& err() { return err_ ? *err_ : out_; }

 private:
  OutputSink out_;
  std::optional<OutputSink>
      err_;  // none if both are one file: two writers would cut each other's lines
  bool progress_shown_ = false;
};

// The last lines of a rank, of both its outputs.
class Tail {
 public:
  // To be called right after the line was written to `sink`.
  void add(std::string_view line, const OutputSink& sink);
  const std::deque<std::string>& lines() const { return lines_; }

  // Whether a reader of `sink` has the last line before the eyes: nobody wrote a line since.
  bool is_last_in(const OutputSink& sink) const;

 private:
  std::deque<std::string> lines_;
  const OutputSink* sink_ = nullptr;
  size_t line_number_ = 0;  // of the last line, in its sink
};

}  // namespace zeroth::launcher
