// A timer that stands still while the process is stopped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace zeroth::launcher {

// Counts short naps instead of looking at the clock: whoever suspends the launcher (Ctrl-Z, a batch
// system) suspends its ranks too, and the time that these have been given is not over when they
// wake.
class SuspendableTimer {
 public:
  explicit SuspendableTimer(boost::asio::io_context& io) : timer_(io) {}

  // Calls back after `limit`, in the io_context's thread; what it waited for before is forgotten.
  void start(std::chrono::milliseconds limit, std::function<void()> callback);
  void cancel() {
    ++*generation_;
    timer_.cancel();
  }

 private:
  void nap(int64_t generation);

  boost::asio::steady_timer timer_;
  std::chrono::milliseconds left_{0};
  // Shared: a nap may end when its timer has gone.
  std::shared_ptr<int64_t> generation_ = std::make_shared<int64_t>(
      0);  // a nap of an earlier one may be over already, and cannot be cancelled then
  std::function<void()> callback_;
};

}  // namespace zeroth::launcher
