// A channel that monitors its peer's liveness: both sides send a heartbeat each second, and the
// connection ends with a reason if none arrives.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launcher/run/suspendable_timer.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/messages.h"

namespace zeroth::launcher {

class HeartbeatChannel {
 public:
  struct HeartbeatHandlers {
    // Called without heartbeats.
    std::function<void(const Message&)> on_message = [](const Message&) {};
    // Called once, with the reason.
    std::function<void(const std::string&)> on_lost = [](const std::string&) {};
  };

  // Does not count time in which this process is stopped. Callbacks run in the io_context's thread,
  // none within a call of this object, and none after close(). Must live as long as `io` runs.
  HeartbeatChannel(boost::asio::io_context& io, std::shared_ptr<Channel> channel,
                   std::chrono::milliseconds liveness_timeout, HeartbeatHandlers handlers);
  HeartbeatChannel(const HeartbeatChannel&) = delete;
  HeartbeatChannel& operator=(const HeartbeatChannel&) = delete;
  ~HeartbeatChannel() { close(); }

  void set_handlers(HeartbeatHandlers handlers) {
    handlers_ = std::make_shared<HeartbeatHandlers>(std::move(handlers));
  }
  // Sets the peer's `liveness_timeout`, which determines how often this side sends heartbeats. This
  // side's own timeout is `factor` times as long.
  void set_liveness_timeout(std::chrono::milliseconds liveness_timeout, int factor);
  // Suspends the liveness check while the peer is known to be stopped.
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
