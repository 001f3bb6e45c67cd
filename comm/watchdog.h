// Ends a run whose device waits for ever. A host thread that waits can give up by itself; a GPU's
// collective cannot be called back, and the host only learns of it when it waits for the GPU. So a
// thread looks after what is under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace zeroth::comm {

// Must not return: the process cannot go on. Called on the watchdog's thread.
using OnStuck = std::function<void(const std::string& message)>;

class Watchdog {
 public:
  // Things end in the order in which they were handed over. Called on the watchdog's thread.
  struct Watched {
    std::function<bool()> ended;
    // Why it cannot end any more ("rank 1 is gone"); empty while it may.
    std::function<std::string()> lost = [] { return std::string(); };
    std::function<std::string(const std::string& why)> message;
    std::function<void()> at_end = [] {};
  };

  // `limit`: for each of them, since it was handed over and the one before it has ended. Without
  // `on_stuck` the process is terminated with the message as an exception that nobody catches.
  Watchdog(std::chrono::milliseconds limit, OnStuck on_stuck);
  ~Watchdog();

  void watch(Watched watched);

  // Something that the calling thread does itself ("connecting over NCCL"), for as long as the
  // result lives.
  [[nodiscard]] std::shared_ptr<void> guard(std::function<std::string(const std::string&)> message);

 private:
  using Clock = std::chrono::steady_clock;

  void run(const std::stop_token& stop);
  void look();

  std::chrono::milliseconds limit_;
  OnStuck on_stuck_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Watched> queue_;
  Clock::time_point front_since_;
  std::jthread thread_;
};

}  // namespace zeroth::comm
