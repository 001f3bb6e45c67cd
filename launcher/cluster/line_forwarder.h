// What the ranks of a host print, on its way to the launcher: never more than a window of it, so
// that a network that is slower than the ranks stops the ranks, not the heartbeats, and takes no
// memory.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/cluster/messages.h"
#include "launcher/run/rank_stream.h"

namespace zeroth::launcher {

// What a line counts in the window: its text, and what there is beside it.
inline constexpr uint64_t kLineBytes = 64;
uint64_t window_bytes(const OutputLines& lines);

class LineForwarder {
 public:
  static constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMessageBytes = uint64_t{64} << 10;

  // `send` gets lines in bundles: those of one turn of the io_context.
  LineForwarder(boost::asio::io_context& io, std::function<void(const OutputLines&)> send);
  LineForwarder(const LineForwarder&) = delete;
  LineForwarder& operator=(const LineForwarder&) = delete;
  ~LineForwarder();

  // Lives as long as this. `progress`: see LineSink::splits_returns.
  LineSink& sink_for(int rank, bool error, bool progress);

  // Sends what waits for the end of this turn.
  void flush();
  // So much has reached the launcher's own output.
  void on_window_update(uint64_t bytes);
  // Nobody takes lines any more: what comes is dropped, so that ranks do not wait.
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
