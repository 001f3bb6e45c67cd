// Forwards the output of a node's ranks to the launcher, at most one flow-control window at a time.
// A network slower than the ranks therefore blocks the ranks, not the heartbeats, and uses no
// memory.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "launcher/run/output.h"
#include "launcher/transport/messages.h"

namespace zeroth::launcher {

// Overhead of a line in the window, in addition to its text.
inline constexpr uint64_t kLineBytes = 64;
uint64_t window_bytes(const OutputLines& lines);

class LineForwarder {
 public:
  static constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMessageBytes = uint64_t{64} << 10;

  // `send` receives lines in batches: those of one iteration of the io_context.
  LineForwarder(boost::asio::io_context& io, std::function<void(const OutputLines&)> send);
  LineForwarder(const LineForwarder&) = delete;
  LineForwarder& operator=(const LineForwarder&) = delete;
  ~LineForwarder();

  // Returns a sink that lives as long as this object. `progress`: see LineSink::splits_returns.
  LineSink& sink_for(int rank, bool error, bool progress);

  // Sends the lines that wait for the end of this iteration.
  void flush();
  // Reopens the window by the bytes that have reached the launcher's own output.
  void on_window_update(uint64_t bytes);
  // Drops all lines from now on, as no process receives them any more, so that ranks do not block.
  void drop_all();

 private:
  class ForwardingSink;

  void write(OutputLines::OutputLine line);
  bool is_full() const { return !dropping_ && in_window_ + waiting_bytes_ >= kWindowBytes; }

  boost::asio::io_context& io_;
  std::function<void(const OutputLines&)> send_;
  std::map<std::pair<int, bool>, std::unique_ptr<ForwardingSink>> sinks_;
  OutputLines waiting_;
  uint64_t waiting_bytes_ = 0;
  uint64_t in_window_ = 0;
  bool dropping_ = false;
  std::vector<std::function<void()>> when_empty_;
};

}  // namespace zeroth::launcher
