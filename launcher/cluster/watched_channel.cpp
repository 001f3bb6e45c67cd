#include "launcher/cluster/watched_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kBeat{1000};

milliseconds beat_of(milliseconds silence) {
  return std::clamp(silence / 5, milliseconds(10), kBeat);
}

}  // namespace

WatchedChannel::WatchedChannel(boost::asio::io_context& io, std::shared_ptr<Channel> channel,
                               milliseconds silence, Handlers handlers)
    : channel_(std::move(channel)),
      handlers_(std::make_shared<Handlers>(std::move(handlers))),
      timer_(io),
      silence_(silence),
      beat_(beat_of(silence)) {
  channel_->start({[this](std::string_view bytes) {
                     silent_for_ = milliseconds(0);
                     Message message = decode(bytes);
                     make_showable(message);
                     if (std::holds_alternative<Heartbeat>(message)) return;
                     const auto kept = handlers_;  // whatever the callback does to this
                     kept->on_message(message);
                   },
                   [this](const std::string& why) { lose(why); }});
  beat();
}

void WatchedChannel::set_silence(milliseconds silence, int patience) {
  silence_ = patience * silence;
  beat_ = beat_of(silence);
  silent_for_ = milliseconds(0);
  beat();
}

void WatchedChannel::excuse(bool excused) {
  excused_ = excused;
  silent_for_ = milliseconds(0);
}

void WatchedChannel::beat() {
  timer_.start(beat_, [this] {
    if (!is_open()) return;
    silent_for_ += excused_ ? milliseconds(0) : beat_;
    if (silent_for_ >= silence_) {
      channel_->close();
      return lose(fmt::format("no word for {} s", std::chrono::duration<double>(silence_).count()));
    }
    send(Heartbeat{});
    beat();
  });
}

void WatchedChannel::lose(const std::string& why) {
  timer_.cancel();
  const auto kept = handlers_;
  kept->on_lost(why);
}

void WatchedChannel::close() {
  timer_.cancel();
  channel_->close();
}

}  // namespace zeroth::launcher
