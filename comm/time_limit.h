// Waits with an end. Time in which the process is suspended does not count.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {

// How often to ask at least.
inline constexpr std::chrono::milliseconds kPollInterval{200};

// Time since it was made, without that in which the process was suspended (Ctrl-Z, a batch system):
// what lies between two questions counts as one glance at most.
class SuspendAwareTimer {
 public:
  std::chrono::milliseconds elapsed() {
    const auto now = Clock::now();
    elapsed_ += std::min<Clock::duration>(now - last_poll_, kPollInterval);
    last_poll_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_poll_ = Clock::now();
  Clock::duration elapsed_{0};
};

// Why a collective is given up that has waited so long.
inline std::string timeout_message(std::chrono::milliseconds waited) {
  return fmt::format("waited {:.3g} s, the time limit (--timeout, DEEPSPEED_TIMEOUT)",
                     std::chrono::duration<double>(waited).count());
}

// For waits that have no end of their own: what `work` returns or throws; an Error with `late` and
// the seconds when it is not over after `limit`, which stands still while the process is suspended.
// Then its thread stays behind, so `work` must own all that it uses. While it waits, it calls
// `on_poll` at each poll with the time that has passed.
template <typename Work>
auto run_with_timeout(std::chrono::milliseconds limit, const std::string& late, Work work,
                      const std::function<void(std::chrono::milliseconds waited)>& on_poll = {}) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  SuspendAwareTimer time;
  while (result.wait_for(std::min(kPollInterval, limit)) != std::future_status::ready) {
    const auto waited = time.elapsed();
    if (on_poll) on_poll(waited);
    if (waited < limit) continue;
    thread.detach();
    throw Error("{}: {}", late, timeout_message(waited));
  }
  thread.join();  // holds nothing of `work` any more
  return result.get();
}

}  // namespace zeroth::comm
