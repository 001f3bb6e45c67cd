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
  nap(++*turn_);
}

void RunningTimer::nap(int64_t turn) {
  const auto length = std::min(left_, kNap);
  timer_.expires_after(length);
  timer_.async_wait(
      [this, length, turn, now = std::weak_ptr(turn_)](boost::system::error_code error) {
        const auto current = now.lock();
        if (error || !current || turn != *current) return;
        left_ -= length;
        left_.count() > 0 ? nap(turn) : std::exchange(callback_, nullptr)();
      });
}

}  // namespace zeroth::launcher
