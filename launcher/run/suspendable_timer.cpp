#include "launcher/run/suspendable_timer.h"

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

void SuspendableTimer::start(std::chrono::milliseconds limit, std::function<void()> callback) {
  left_ = limit;
  callback_ = std::move(callback);
  nap(++*generation_);
}

void SuspendableTimer::nap(int64_t generation) {
  const auto length = std::min(left_, std::chrono::milliseconds(100));
  timer_.expires_after(length);
  timer_.async_wait([this, length, generation,
                     now = std::weak_ptr(generation_)](boost::system::error_code error) {
    const auto current = now.lock();
    if (error || !current || generation != *current) return;
    left_ -= length;
    left_.count() > 0 ? nap(generation) : std::exchange(callback_, nullptr)();
  });
}

}  // namespace zeroth::launcher
