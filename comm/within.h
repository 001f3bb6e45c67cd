// An end for waits that have none of their own.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace zeroth::comm {

// What `work` returns or throws, or nothing when it is not over after `limit`. Then its thread
// stays behind, so `work` must own all that it uses.
template <typename Work>
auto within(std::chrono::milliseconds limit, Work work) {
  using Result = std::invoke_result_t<Work>;
  std::packaged_task<Result()> task(std::move(work));
  std::future<Result> result = task.get_future();
  std::thread thread(std::move(task));
  const bool over = result.wait_for(limit) == std::future_status::ready;
  over ? thread.join() : thread.detach();  // joined, it holds nothing of `work` any more
  return over ? std::optional<Result>(result.get()) : std::nullopt;
}

}  // namespace zeroth::comm
