// The path of ranks' output to the launcher's own output: complete lines, prefixed, without
// blocking the launcher.
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

#include "base/machine/file_descriptor.h"

namespace zeroth::launcher {

enum class LineEnd { kNewline, kReturn };

// LineSplitter splits a stream of bytes into lines.
class LineSplitter {
 public:
  // `text` is without its line end and is valid during the call only.
  using Sink = std::function<void(std::string_view text, LineEnd end)>;

  // Longer lines are split at this size.
  static constexpr size_t kMaxLineBytes = size_t{1} << 20;

  // `split_returns` makes '\r' end a line too (kReturn), as for progress lines on a terminal: empty
  // ones are skipped, and a '\n' directly after it passes on the same text as a line. Otherwise
  // '\r' is an ordinary character.
  explicit LineSplitter(bool split_returns) : split_returns_(split_returns) {}

  void feed(std::string_view bytes, const Sink& sink);

  // Passes on the last partial line.
  void flush(const Sink& sink);

 private:
  void end_line(const Sink& sink);
  void end_return(const Sink& sink);

  bool split_returns_;
  std::string partial_;
  std::string returned_;  // the last kReturn text, until anything follows it
};

// OutputSink is one of the launcher's outputs. It buffers text that a pipe or terminal cannot
// accept now; it writes to files at once. Callbacks run in the io_context's thread.
class OutputSink {
 public:
  // Calls `on_broken(errno)` once when writing fails (EPIPE: there is no reader); later text is
  // dropped.
  OutputSink(boost::asio::io_context& io, int fd, std::function<void(int)> on_broken);

  void write(std::string_view text);
  void write_line(std::string_view text);  // counts complete lines

  size_t num_lines() const { return num_lines_; }
  bool is_full() const { return pending_.size() > kMaxPendingBytes; }
  bool empty() const { return pending_.empty(); }
  bool is_terminal() const { return is_terminal_; }

  // Calls back once all text is written, possibly at once.
  void when_empty(std::function<void()> callback);

 private:
  static constexpr size_t kMaxPendingBytes = size_t{1} << 20;

  void flush();

  int fd_;
  bool is_terminal_;
  std::optional<boost::asio::posix::stream_descriptor> reopened_;  // non-blocking; may be empty
  bool waiting_ = false;
  std::shared_ptr<bool> lifetime_ = std::make_shared<bool>(true);  // a wait may outlive this
  size_t num_lines_ = 0;
  std::string pending_;
  std::vector<std::function<void()>> callbacks_;
  std::function<void(int)> on_broken_;
};

// Console owns both outputs of the launcher, and the progress line on a terminal.
class Console {
 public:
  // `on_broken(fd, errno)` receives STDOUT_FILENO or STDERR_FILENO; see OutputSink.
  Console(boost::asio::io_context& io, const std::function<void(int, int)>& on_broken);

  void write_line(OutputSink& sink, std::string_view text);
  void write_progress(std::string_view text);  // to `out`; the next line or progress replaces it
  void keep_progress();                        // keeps the current progress line

  OutputSink& out() { return out_; }
  OutputSink& err() { return err_ ? *err_ : out_; }

 private:
  OutputSink out_;
  std::optional<OutputSink>
      err_;  // empty if both are one file: two writers would split each other's lines
  bool progress_shown_ = false;
};

// Tail keeps the last lines of a rank, of both its outputs.
class Tail {
 public:
  // Adds a line. Must be called directly after it was written to `sink`.
  void add(std::string_view line, const OutputSink& sink);
  const std::deque<std::string>& lines() const { return lines_; }

  // Returns whether the rank's last line is also the last line of `sink`.
  bool is_last_in(const OutputSink& sink) const;

 private:
  std::deque<std::string> lines_;
  const OutputSink* sink_ = nullptr;
  size_t line_number_ = 0;  // of the last line, in its sink
};

// LineSink receives the lines of one output of one rank.
class LineSink {
 public:
  virtual ~LineSink() = default;

  // `text` is without its line end and is valid during the call only.
  virtual void write(std::string_view text, LineEnd end) = 0;
  // Returns whether the caller should pause; lines that arrive nevertheless are kept.
  virtual bool is_full() const = 0;
  // Calls back once the sink is no longer full, possibly at once.
  virtual void when_empty(std::function<void()> callback) = 0;
  // Returns whether '\r' ends a line too; see LineSplitter.
  virtual bool splits_returns() const { return false; }
};

// RankStream reads complete lines. It pauses reading while the sink is full, which blocks the rank.
class RankStream {
 public:
  RankStream(boost::asio::io_context& io, FileDescriptor source, LineSink& sink);

  // Reads until the end of the stream, then calls back once.
  void start(std::function<void()> on_closed);

  void drain();  // reads the available bytes, even if the sink is full
  void close();  // ends the stream, including its last partial line
  bool is_open() const { return source_.is_open(); }

 private:
  void wait();
  bool read_some();  // false: nothing available, or closed

  boost::asio::posix::stream_descriptor source_;
  LineSink& sink_;
  LineSplitter splitter_;
  LineSplitter::Sink to_sink_;
  std::function<void()> on_closed_;
};

}  // namespace zeroth::launcher
