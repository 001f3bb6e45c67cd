#include "launcher/run/running_timer.h"

#include <algorithm>
#include <utility>

namespace zeroth::launcher {
namespace {

constexpr std::chrono::milliseconds kNap{100};

}  // namespace

void RunningTimer::start(std::chrono::milliseconds limit, std::function<void()> callback) {
  left_ = limit;
  callback_ = std::move(callback);
  nap();
}

void RunningTimer::nap() {
  const auto length = std::min(left_, kNap);
  timer_.expires_after(length);
  timer_.async_wait([this, length](boost::system::error_code error) {
    if (error) return;
    left_ -= length;
    left_.count() > 0 ? nap() : std::exchange(callback_, nullptr)();
  });
}

}  // namespace zeroth::launcher
