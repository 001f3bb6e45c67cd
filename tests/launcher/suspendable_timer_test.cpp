#include "launcher/run/suspendable_timer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/child_process.h"

namespace zeroth::launcher::suspendable_timer_test {

using std::chrono::milliseconds;

TEST_CASE("a timer that is started again forgets what it waited for; a cancelled one is silent") {
  boost::asio::io_context io;
  SuspendableTimer timer(io), cancelled(io);
  std::string calls;
  cancelled.start(milliseconds(10), [&] { calls += "cancelled "; });
  timer.start(milliseconds(10), [&] { calls += "first "; });
  timer.start(milliseconds(250), [&] { calls += "second "; });
  cancelled.cancel();
  const auto start = std::chrono::steady_clock::now();
  io.run();
  CHECK(calls == "second ");
  CHECK(std::chrono::steady_clock::now() - start >= milliseconds(250));
}

TEST_CASE("a timer stands still while the process is stopped") {
  const ChildResult result = in_child([] {
    continue_when_stopped_for(milliseconds(2000));
    boost::asio::io_context io;
    SuspendableTimer timer(io);
    timer.start(milliseconds(1500), [] {});
    io.run_for(milliseconds(50));
    ::raise(SIGSTOP);
    const auto continued = std::chrono::steady_clock::now();
    io.run();
    return std::chrono::steady_clock::now() - continued >= milliseconds(700) ? 0 : 1;
  });
  CHECK(result.status == 0);
}

}  // namespace zeroth::launcher::suspendable_timer_test
