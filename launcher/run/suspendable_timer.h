// A timer that pauses while the process is suspended.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace zeroth::launcher {

// SuspendableTimer counts short sleeps instead of reading the clock. A user or batch system that
// suspends the launcher (Ctrl-Z) suspends its ranks too; their remaining time does not elapse
// meanwhile.
class SuspendableTimer {
 public:
  explicit SuspendableTimer(boost::asio::io_context& io) : timer_(io) {}

  // Calls back after `limit`, in the io_context's thread. Replaces an earlier timeout.
  void start(std::chrono::milliseconds limit, std::function<void()> callback);
  void cancel() {
    ++*generation_;
    timer_.cancel();
  }

 private:
  void nap(int64_t generation);

  boost::asio::steady_timer timer_;
  std::chrono::milliseconds left_{0};
  // Shared, because a sleep may end after its timer. A different value marks a sleep that has
  // already ended and cannot be cancelled as obsolete.
  std::shared_ptr<int64_t> generation_ = std::make_shared<int64_t>(0);
  std::function<void()> callback_;
};

}  // namespace zeroth::launcher
