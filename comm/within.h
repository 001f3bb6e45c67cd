// An end for waits that have none of their own.
#pragma once

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/call.h"
#include "comm/running_time.h"

namespace zeroth::comm {

// What `work` returns or throws; an Error with `late` and the seconds when it is not over after
// `limit`, which stands still while the process is suspended. Then its thread stays behind, so
// `work` must own all that it uses.
template <typename Work>
auto within(std::chrono::milliseconds limit, const std::string& late, Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  RunningTime time;
  while (result.wait_for(std::min(kGlance, limit)) != std::future_status::ready) {
    const auto waited = time.passed();
    if (waited < limit) continue;
    thread.detach();
    throw Error("{}: {}", late, time_limit_text(waited));
  }
  thread.join();  // holds nothing of `work` any more
  return result.get();
}

}  // namespace zeroth::comm
