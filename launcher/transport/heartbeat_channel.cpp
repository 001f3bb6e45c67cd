#include "launcher/transport/heartbeat_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kMaxHeartbeatInterval{1000};

milliseconds heartbeat_interval(milliseconds liveness_timeout) {
  return std::clamp(liveness_timeout / 5, milliseconds(10), kMaxHeartbeatInterval);
}

}  // namespace

HeartbeatChannel::HeartbeatChannel(boost::asio::io_context& io, std::shared_ptr<Channel> channel,
                                   milliseconds liveness_timeout, HeartbeatHandlers handlers)
    : channel_(std::move(channel)),
      handlers_(std::make_shared<HeartbeatHandlers>(std::move(handlers))),
      timer_(io),
      liveness_timeout_(liveness_timeout),
      heartbeat_interval_(heartbeat_interval(liveness_timeout)) {
  channel_->start({[this](std::string_view bytes) {
                     silent_for_ = milliseconds(0);
                     Message message = decode(bytes);
                     make_showable(message);
                     if (std::holds_alternative<Heartbeat>(message)) return;
                     const auto kept = handlers_;  // a callback may replace `handlers_`
                     kept->on_message(message);
                   },
                   [this](const std::string& why) { on_connection_lost(why); }});
  schedule_heartbeat();
}

void HeartbeatChannel::set_liveness_timeout(milliseconds liveness_timeout, int factor) {
  liveness_timeout_ = factor * liveness_timeout;
  heartbeat_interval_ = heartbeat_interval(liveness_timeout);
  silent_for_ = milliseconds(0);
  schedule_heartbeat();
}

void HeartbeatChannel::suspend_liveness(bool suspended) {
  liveness_suspended_ = suspended;
  silent_for_ = milliseconds(0);
}

void HeartbeatChannel::schedule_heartbeat() {
  timer_.start(heartbeat_interval_, [this] {
    if (!is_open()) return;
    silent_for_ += liveness_suspended_ ? milliseconds(0) : heartbeat_interval_;
    if (silent_for_ >= liveness_timeout_) {
      channel_->close();
      return on_connection_lost(fmt::format(
          "no heartbeat for {} s", std::chrono::duration<double>(liveness_timeout_).count()));
    }
    send(Heartbeat{});
    schedule_heartbeat();
  });
}

void HeartbeatChannel::on_connection_lost(const std::string& why) {
  timer_.cancel();
  const auto kept = handlers_;
  kept->on_lost(why);
}

void HeartbeatChannel::close() {
  timer_.cancel();
  channel_->close();
}

}  // namespace zeroth::launcher
