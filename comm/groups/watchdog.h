// The watchdog, which ends a run whose device waits forever. A CPU thread that waits can give up by
// itself; a GPU's collective cannot be cancelled, and the CPU only notices it when it waits for the
// GPU. So one thread polls whether the work in progress has ended (a poll may block while another
// thread waits for the device), and a second one checks the time limit.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/groups/group.h"
#include "comm/time_limit.h"

namespace zeroth::comm {

class Watchdog {
 public:
  // WatchedWork ends in the order of watch() calls. Its functions run on the watchdog's threads.
  struct WatchedWork {
    std::function<bool()> ended;
    // Returns why it can never end ("rank 1 is gone"); empty while it can.
    std::function<std::string()> lost = [] { return std::string(); };
    std::function<std::string(const std::string& why)> message;
    std::function<void()> on_done = [] {};
  };

  // `limit` applies to each work item, from the later of its watch() call and the end of the
  // previous item. Time in which the process was suspended does not count. Without `on_hang` the
  // process is terminated with the message as an uncaught exception, and after a few seconds even
  // if nothing reads the message. `on_thread_start` is called first on each of the watchdog's
  // threads. CUDA needs it: a new thread's device is GPU 0, on which its first query would create a
  // context.
  Watchdog(std::chrono::milliseconds limit, HangHandler on_hang,
           std::function<void()> on_thread_start = {});
  ~Watchdog();

  void watch(WatchedWork work_item);

  // Watches an operation of the calling thread itself ("connecting over NCCL"), for as long as the
  // result lives.
  [[nodiscard]] std::shared_ptr<void> guard(std::function<std::string(const std::string&)> message);

 private:
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<WatchedWork> front();
  void poll();  // removes ended work from the queue
  void check_timeout();
  void give_up(const WatchedWork& work_item, const std::string& why);
  // Starts a thread that calls `task` repeatedly until it is stopped.
  std::jthread repeat(void (Watchdog::*task)());

  std::chrono::milliseconds limit_, poll_interval_;
  HangHandler on_hang_;
  std::function<void()> on_thread_start_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<WatchedWork>> queue_;
  SuspendAwareTimer front_time_;
  Clock::time_point lost_since_ = Clock::time_point::max();  // used by poll() only
  std::atomic<bool> given_up_ = false;
  std::jthread poll_thread_, timeout_thread_;
};

}  // namespace zeroth::comm
