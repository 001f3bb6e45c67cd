// A channel whose other side is known to live: a word each second both ways, and an end that says
// why where none comes.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launcher/cluster/channel.h"
#include "launcher/cluster/messages.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {

class WatchedChannel {
 public:
  struct Handlers {
    std::function<void(const Message&)> on_message;   // heartbeats are left out
    std::function<void(const std::string&)> on_lost;  // once; says why
  };

  // Time in which this process is stopped does not count. Callbacks run in the io_context's thread,
  // none within a call of this, and none after close(). Lives as long as `io` runs.
  WatchedChannel(boost::asio::io_context& io, std::shared_ptr<Channel> channel,
                 std::chrono::milliseconds silence, Handlers handlers);
  WatchedChannel(const WatchedChannel&) = delete;
  WatchedChannel& operator=(const WatchedChannel&) = delete;
  ~WatchedChannel() { close(); }

  void set_handlers(Handlers handlers) {
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
  }
  // `silence`: after which the other side gives this one up, so that this one speaks as often as
  // that needs. Here it takes `patience` times as long.
  void set_silence(std::chrono::milliseconds silence, int patience);
  // The other side is known to be stopped, or no longer is.
  void excuse(bool excused);

  void send(const Message& message) { channel_->send(encode(message)); }
  void close();
  bool is_open() const { return channel_->is_open(); }
  const Channel& channel() const { return *channel_; }

 private:
  void beat();
  void lose(const std::string& why);

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Handlers> handlers_;
  RunningTimer timer_;
  std::chrono::milliseconds silence_;
  std::chrono::milliseconds beat_;
  std::chrono::milliseconds silent_for_{0};
  bool excused_ = false;
};

}  // namespace zeroth::launcher
