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
using OnStuck = std::function<void(const std::string& message)>;

class Watchdog {
 public:
  // Things end in the order in which they were handed over. Called on the watchdog's threads.
  struct Watched {
    std::function<bool()> ended;
    // Why it cannot end any more ("rank 1 is gone"); empty while it may.
    std::function<std::string()> lost = [] { return std::string(); };
    std::function<std::string(const std::string& why)> message;
    std::function<void()> at_end = [] {};
  };

  // `limit`: for each thing, since it was handed over and the one before it has ended. Time in
  // which the process was suspended does not count. Without `on_stuck` the process is terminated
  // with the message as an exception that nobody catches, and soon also where nobody reads that.
  // `on_thread_start` is called on each of its threads before anything else. CUDA needs it: a new
  // thread's device is GPU 0, on which its first question would open a context.
  Watchdog(std::chrono::milliseconds limit, OnStuck on_stuck,
           std::function<void()> on_thread_start = {});
  ~Watchdog();

  void watch(Watched watched);

  // Something that the calling thread does itself ("connecting over NCCL"), for as long as the
  // result lives.
  [[nodiscard]] std::shared_ptr<void> guard(std::function<std::string(const std::string&)> message);

 private:
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<Watched> front();
  void look();  // takes what has ended off the queue
  void check_time();
  void give_up(const Watched& watched, const std::string& why);
  // Calls `task` again and again until the end.
  std::jthread repeat(void (Watchdog::*task)());

  std::chrono::milliseconds limit_, glance_;
  OnStuck on_stuck_;
  std::function<void()> on_thread_start_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Watched>> queue_;
  RunningTime front_time_;
  Clock::time_point lost_since_ = Clock::time_point::max();  // of look() alone
  std::atomic<bool> given_up_ = false;
  std::jthread looks_, times_;
};

}  // namespace zeroth::comm
