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
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

class HeartbeatChannel {
 public:
  struct HeartbeatHandlers {
    std::function<void(const Message&)> on_message;   // heartbeats are left out
    std::function<void(const std::string&)> on_lost;  // once; says why
  };

  // Time in which this process is stopped does not count. Callbacks run in the io_context's thread,
  // none within a call of this, and none after close(). Lives as long as `io` runs.
  HeartbeatChannel(boost::asio::io_context& io, std::shared_ptr<Channel> channel,
                   std::chrono::milliseconds liveness_timeout, HeartbeatHandlers handlers);
  HeartbeatChannel(const HeartbeatChannel&) = delete;
  HeartbeatChannel& operator=(const HeartbeatChannel&) = delete;
  ~HeartbeatChannel() { close(); }

  void set_handlers(HeartbeatHandlers handlers) {
    handlers_ = std::make_shared<HeartbeatHandlers>(std::move(handlers));
  }
  // `silence`: after which the other side gives this one up, so that this one speaks as often as
  // that needs. Here it takes `patience` times as long.
  void set_liveness_timeout(std::chrono::milliseconds liveness_timeout, int factor);
  // The other side is known to be stopped, or no longer is.
  void suspend_liveness(bool suspended);

  void send(const Message& message) { channel_->send(encode(message)); }
  void close();
  bool is_open() const { return channel_->is_open(); }
  const Channel& channel() const { return *channel_; }

 private:
  void schedule_heartbeat();
  void on_connection_lost(const std::string& why);

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<HeartbeatHandlers> handlers_;
  SuspendableTimer timer_;
  std::chrono::milliseconds liveness_timeout_;
  std::chrono::milliseconds heartbeat_interval_;
  std::chrono::milliseconds silent_for_{0};
  bool liveness_suspended_ = false;
};

}  // namespace zeroth::launcher
