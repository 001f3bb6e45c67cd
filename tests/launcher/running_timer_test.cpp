#include "launcher/running_timer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/child_process.h"

namespace zeroth::launcher {

using std::chrono::milliseconds;

TEST_CASE("a timer that is started again forgets what it waited for; a cancelled one is silent") {
  boost::asio::io_context io;
  RunningTimer timer(io), cancelled(io);
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
    const pid_t me = ::getpid();
    if (::fork() == 0) {
      ::usleep(1'000'000);
      ::kill(me, SIGCONT);
      ::_exit(0);
    }
    boost::asio::io_context io;
    RunningTimer timer(io);
    std::chrono::steady_clock::time_point continued;
    timer.start(milliseconds(600), [] {});
    io.run_for(milliseconds(50));
    ::raise(SIGSTOP);
    continued = std::chrono::steady_clock::now();
    io.run();
    return std::chrono::steady_clock::now() - continued >= milliseconds(400) ? 0 : 1;
  });
  CHECK(result.status == 0);
}

}  // namespace zeroth::launcher
