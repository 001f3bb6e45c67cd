#include "trainer/stop_signal.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace zeroth::trainer::stop_signal_test {
namespace {

// How a process of its own ends that runs `body` and, unless it dies, returns its result.
template <typename Body>
int status_of(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// The signal that `stop` has seen; 0 if it sees none within a minute.
int seen(const StopSignal& stop) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::minutes(1);
  while (stop.signal() == 0 && steady_clock::now() < end) ::usleep(1000);
  return stop.signal();
}

}  // namespace

TEST_CASE("the first signal is remembered once it is heeded") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = status_of([signal] {
      StopSignal stop;
      stop.enable();
      if (stop.signal() != 0) return 1;
      ::kill(::getpid(), signal);
      return seen(stop);
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == signal);
  }
}

TEST_CASE("a run that is to outlive its terminal does not end by SIGHUP") {
  const int status = status_of([] {
    ::signal(SIGHUP, SIG_IGN);
    StopSignal stop;
    stop.enable();
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGTERM);
    return seen(stop);
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == SIGTERM);
}

TEST_CASE("the second signal ends the process at once, with its number in the exit code") {
  for (const auto& [second, wait_us] : {std::pair{SIGINT, 0}, std::pair{SIGTERM, 1'000'000}}) {
    const int status = status_of([second = second, wait_us = wait_us] {
      StopSignal stop;
      stop.enable();
      ::kill(::getpid(), SIGTERM);
      if (seen(stop) != SIGTERM) return 1;
      ::usleep(wait_us);
      ::kill(::getpid(), second);
      ::sleep(60);
      return 2;
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + second);
  }
}

TEST_CASE("a signal that comes twice at the same moment, to process and group, is one") {
  // Where the process comes to the second one late, it counts: that says nothing.
  constexpr std::chrono::milliseconds kOneSignal{250};
  bool one = false;
  for (int attempt = 0; !one; ++attempt) {
    REQUIRE(attempt < 20);
    const auto start = std::chrono::steady_clock::now();
    const int status = status_of([] {
      StopSignal stop;
      stop.enable();
      ::kill(::getpid(), SIGTERM);
      if (seen(stop) != SIGTERM) return 1;
      ::kill(::getpid(), SIGTERM);
      ::usleep(100'000);
      return 3;
    });
    REQUIRE(WIFEXITED(status));
    one = WEXITSTATUS(status) == 3;
    if (!one) REQUIRE(std::chrono::steady_clock::now() - start > kOneSignal);
  }
}

TEST_CASE("before it is heeded a signal ends the process as ever") {
  const int status = status_of([] {
    const StopSignal stop;
    ::kill(::getpid(), SIGTERM);
    ::sleep(60);
    return 1;
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("without a signal it ends without a trace") {
  const int status = status_of([] {
    StopSignal stop;
    stop.enable();
    return stop.signal();
  });
  CHECK(status == 0);
}

}  // namespace zeroth::trainer::stop_signal_test
