#include "launcher/run/guard.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::guard_test {
namespace {

// A process with this mark in its environment, or without one. It executes already.
pid_t sleeper(const std::string& mark) {
  const pid_t pid = ::fork();
  if (pid != 0) {
    eventually([&] { return read_text(fmt::format("/proc/{}/comm", pid)) == "sleep\n"; });
    return pid;
  }
  if (!mark.empty()) ::setenv(Guard::kVariable, mark.c_str(), 1);
  ::execl("/bin/sleep", "sleep", "60", nullptr);
  ::_exit(1);
}

bool is_killed(pid_t pid) {
  return !is_alive(pid) && ::waitpid(pid, nullptr, WNOHANG) == pid;
}

void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace

TEST_CASE("exactly the processes with the mark are killed") {
  const pid_t marked = sleeper("one.1");
  const pid_t longer = sleeper("one.12");
  const pid_t plain = sleeper("");
  CHECK(kill_marked("one.1") == 1);
  CHECK(eventually([&] { return is_killed(marked); }));
  CHECK(is_alive(longer));
  CHECK(is_alive(plain));
  end(longer);
  end(plain);
}

TEST_CASE("a guard that is sent home kills nothing, and marks differ") {
  std::string first;
  pid_t marked = 0;
  {
    const Guard guard;
    first = guard.mark();
    marked = sleeper(first);
    const Guard second;
    CHECK(second.mark() != first);
  }
  CHECK(is_alive(marked));
  CHECK(kill_marked(first) == 1);
  CHECK(eventually([&] { return is_killed(marked); }));
}

TEST_CASE("a guard that somebody ends is replaced, a limited number of times, by one that guards") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Guard guard;
    const bool lived = guard.restart_if_exited().empty();
    const pid_t first = guard.pid();
    ::kill(first, SIGKILL);
    const bool renewed = lived && eventually([&] { return !guard.restart_if_exited().empty(); }) &&
                         guard.pid() != first;
    const pid_t marked = renewed ? sleeper(guard.mark()) : 0;
    [[maybe_unused]] const auto written = ::write(ends[1], &marked, sizeof(marked));
    ::pause();
  }
  pid_t marked = 0;
  REQUIRE(::read(ends[0], &marked, sizeof(marked)) == sizeof(marked));
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(marked > 0);
  end(launcher);
  CHECK(eventually([&] { return !is_alive(marked); }));

  Guard guard;
  std::string reported;
  for (int i = 0; guard.pid() > 0 && i < 100; ++i) {
    ::kill(guard.pid(), SIGKILL);
    CHECK(eventually([&] { return !(reported = guard.restart_if_exited()).empty(); }));
  }
  CHECK(reported.find("was killed and cannot be replaced (it was killed too often)") !=
        std::string::npos);
  CHECK(guard.pid() == -1);
  CHECK(guard.restart_if_exited().empty());
}

TEST_CASE("a guard whose launcher is killed kills what has the mark") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const Guard guard;
    const pid_t marked = sleeper(guard.mark());
    [[maybe_unused]] const auto written = ::write(ends[1], &marked, sizeof(marked));
    ::pause();
  }
  pid_t marked = 0;
  REQUIRE(::read(ends[0], &marked, sizeof(marked)) == sizeof(marked));
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(is_alive(marked));
  end(launcher);
  CHECK(eventually([&] { return !is_alive(marked); }));
}

}  // namespace zeroth::launcher::guard_test
