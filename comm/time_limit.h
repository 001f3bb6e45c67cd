// Waits with a time limit. Time in which the process is suspended does not count.
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

// Maximum time between two polls.
inline constexpr std::chrono::milliseconds kPollInterval{200};

// A SuspendAwareTimer counts the time since its construction, without that in which the process was
// suspended (Ctrl-Z, a batch system): the time between two polls counts as at most one interval.
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

// Returns why a collective that has waited for `waited` is given up.
inline std::string timeout_message(std::chrono::milliseconds waited) {
  return fmt::format("timed out after {:.3g} s (--timeout, DEEPSPEED_TIMEOUT)",
                     std::chrono::duration<double>(waited).count());
}

// Returns or throws the result of `work`, which has no time limit of its own. Throws an Error with
// `late` and the seconds if it has not finished after `limit`, which does not advance while the
// process is suspended. Its thread continues then, so `work` must own all that it uses. Calls
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
  thread.join();  // it holds nothing of `work` any more
  return result.get();
}

}  // namespace zeroth::comm
