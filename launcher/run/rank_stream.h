// One output of one rank, from its pipe to whoever takes its lines.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string_view>

#include "base/file_descriptor.h"
#include "launcher/run/output.h"

namespace zeroth::launcher {

// Where the lines of one output of one rank go.
class LineSink {
 public:
  virtual ~LineSink() = default;

  // `text` is without its end and lives during the call only.
  virtual void write(std::string_view text, LineEnd end) = 0;
  // Nothing should come now; what comes all the same is kept.
  virtual bool is_full() const = 0;
  // Calls back once it is no longer full, which may be at once.
  virtual void when_empty(std::function<void()> callback) = 0;
  // '\r' ends a line too, see LineSplitter.
  virtual bool splits_returns() const { return false; }
};

// Reads whole lines. Reading pauses while the target is full, and then the rank does.
class RankStream {
 public:
  RankStream(boost::asio::io_context& io, FileDescriptor source, LineSink& sink);

  // Reads until the end of the stream, then calls back once.
  void start(std::function<void()> on_closed);

  void drain();  // takes what is there now, even if the target is full
  void close();  // ends the stream, its last partial line included
  bool is_open() const { return source_.is_open(); }

 private:
  void wait();
  bool read_some();  // false: nothing there now, or closed

  boost::asio::posix::stream_descriptor source_;
  LineSink& sink_;
  LineSplitter splitter_;
  LineSplitter::Sink to_sink_;
  std::function<void()> on_closed_;
};

}  // namespace zeroth::launcher
