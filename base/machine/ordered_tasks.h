// OrderedTasks: runs tasks on threads and hands out their results in the order of the tasks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace zeroth {

template <typename Result>
class OrderedTasks {
 public:
  using Task = std::function<Result(size_t thread)>;  // `thread`: below num_threads

  // `consume` is called in the thread that adds the tasks. One thread: tasks run in that thread,
  // too.
  OrderedTasks(size_t num_threads, std::function<void(Result)> consume)
      : max_pending_(2 * num_threads), consume_(std::move(consume)) {
    for (size_t i = 0; num_threads > 1 && i < num_threads; ++i) {
      threads_.emplace_back([this, i](const std::stop_token& stop) { run(i, stop); });
    }
  }

  // Adds a task, and consumes the oldest result if too many are pending. Rethrows the exception of
  // the first task that threw one, in their order.
  void add(Task task) {
    if (threads_.empty()) return consume_(task(0));
    std::packaged_task<Result(size_t)> packaged(std::move(task));
    pending_.push_back(packaged.get_future());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(packaged));
    }
    added_.notify_one();
    if (pending_.size() > max_pending_) consume_oldest();
  }

  // Consumes all results; rethrows like add().
  void finish() {
    while (!pending_.empty()) consume_oldest();
  }

 private:
  void consume_oldest() {
    std::future<Result> oldest = std::move(pending_.front());
    pending_.pop_front();
    consume_(oldest.get());
  }

  void run(size_t thread, const std::stop_token& stop) {
    while (true) {
      std::unique_lock lock(mutex_);
      if (!added_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
      if (stop.stop_requested()) return;
      std::packaged_task<Result(size_t)> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task(thread);
    }
  }

  size_t max_pending_;
  std::function<void(Result)> consume_;
  std::deque<std::future<Result>> pending_;
  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<std::packaged_task<Result(size_t)>> tasks_;
  std::vector<std::jthread> threads_;  // joined before the other members are destroyed
};

}  // namespace zeroth
