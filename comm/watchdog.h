// Ends a run whose device waits for ever. A host thread that waits can give up by itself; a GPU's
// collective cannot be called back, and the host only learns of it when it waits for the GPU. So
// one thread asks whether what is under way has ended (the question may block while another thread
// waits for the device), and a second one watches the time.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/time_limit.h"

namespace zeroth::comm {

// Ends the process, which cannot go on. Called once, on a thread of the watchdog.
using HangHandler = std::function<void(const std::string& message)>;

class Watchdog {
 public:
  // Things end in the order in which they were handed over. Called on the watchdog's threads.
  struct WatchedWork {
    std::function<bool()> ended;
    // Why it cannot end any more ("rank 1 is gone"); empty while it may.
    std::function<std::string()> lost = [] { return std::string(); };
    std::function<std::string(const std::string& why)> message;
    std::function<void()> on_done = [] {};
  };

  // `limit`: for each thing, since it was handed over and the one before it has ended. Time in
  // which the process was suspended does not count. Without `on_hang` the process is terminated
  // with the message as an exception that nobody catches, and soon also where nobody reads that.
  // `on_thread_start` is called on each of its threads before anything else. CUDA needs it: a new
  // thread's device is GPU 0, on which its first question would open a context.
  Watchdog(std::chrono::milliseconds limit, HangHandler on_hang,
           std::function<void()> on_thread_start = {});
  ~Watchdog();

  void watch(WatchedWork work_item);

  // Something that the calling thread does itself ("connecting over NCCL"), for as long as the
  // result lives.
  [[nodiscard]] std::shared_ptr<void> guard(std::function<std::string(const std::string&)> message);

 private:
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<WatchedWork> front();
  void poll();  // takes what has ended off the queue
  void check_time();
  void give_up(const WatchedWork& work_item, const std::string& why);
  // Calls `task` again and again until the end.
  std::jthread repeat(void (Watchdog::*task)());

  std::chrono::milliseconds limit_, poll_interval_;
  HangHandler on_hang_;
  std::function<void()> on_thread_start_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<WatchedWork>> queue_;
  SuspendAwareTimer front_time_;
  Clock::time_point lost_since_ = Clock::time_point::max();  // of poll() alone
  std::atomic<bool> given_up_ = false;
  std::jthread poll_thread_, timeout_thread_;
};

}  // namespace zeroth::comm
