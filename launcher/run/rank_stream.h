// One output of one rank, from its pipe to its LineSink.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string_view>

#include "base/machine/file_descriptor.h"
#include "launcher/run/output.h"

namespace zeroth::launcher {

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
