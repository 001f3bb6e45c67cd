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
inline constexpr std::chrono::milliseconds kGlance{200};

// Time since it was made, without that in which the process was suspended (Ctrl-Z, a batch system):
// what lies between two questions counts as one glance at most.
class RunningTime {
 public:
  std::chrono::milliseconds passed() {
    const auto now = Clock::now();
    passed_ += std::min<Clock::duration>(now - asked_, kGlance);
    asked_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(passed_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point asked_ = Clock::now();
  Clock::duration passed_{0};
};

// Why a collective is given up that has waited so long.
inline std::string time_limit_text(std::chrono::milliseconds waited) {
  return fmt::format("waited {:.3g} s, the time limit (--timeout, DEEPSPEED_TIMEOUT)",
                     std::chrono::duration<double>(waited).count());
}

// For waits that have no end of their own: what `work` returns or throws; an Error with `late` and
// the seconds when it is not over after `limit`, which stands still while the process is suspended.
// Then its thread stays behind, so `work` must own all that it uses. While it waits, it calls
// `glance` at each poll with the time that has passed.
template <typename Work>
auto within(std::chrono::milliseconds limit, const std::string& late, Work work,
            const std::function<void(std::chrono::milliseconds waited)>& glance = {}) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  RunningTime time;
  while (result.wait_for(std::min(kGlance, limit)) != std::future_status::ready) {
    const auto waited = time.passed();
    if (glance) glance(waited);
    if (waited < limit) continue;
    thread.detach();
    throw Error("{}: {}", late, time_limit_text(waited));
  }
  thread.join();  // holds nothing of `work` any more
  return result.get();
}

}  // namespace zeroth::comm
