#include "launcher/run/guard.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::orphans_test {
namespace {

// A child whose own child outlives it; that one's pid comes through a pipe.
pid_t orphan(bool own_session) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() != 0) ::_exit(0);
    if (own_session) ::setsid();
    ::signal(SIGTERM, SIG_IGN);
    const pid_t self = ::getpid();
    [[maybe_unused]] const auto written = ::write(ends[1], &self, sizeof(self));
    ::sleep(60);
    ::_exit(0);
  }
  pid_t grandchild = -1;
  REQUIRE(::read(ends[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  return grandchild;
}

}  // namespace

TEST_CASE("orphans are adopted and killed, whatever session they are in") {
  adopt_orphans();
  const pid_t plain = orphan(false);
  const pid_t apart = orphan(true);
  CHECK(is_alive(plain));
  CHECK(is_alive(apart));
  CHECK(kill_orphans(std::chrono::seconds(5)));
  CHECK_FALSE(is_alive(plain));
  CHECK_FALSE(is_alive(apart));
  CHECK(kill_orphans(std::chrono::seconds(0)));
}

TEST_CASE("dead orphans are reaped, dead ranks are left for their owner") {
  const pid_t rank = ::fork();
  if (rank == 0) ::_exit(3);
  const pid_t other = ::fork();
  if (other == 0) ::_exit(0);
  const auto is_gone = [](pid_t pid) { return ::kill(pid, 0) != 0; };
  CHECK(eventually([&] {
    reap_orphans({});
    return is_gone(rank) && is_gone(other);
  }));
  const pid_t kept = ::fork();
  if (kept == 0) ::_exit(3);
  CHECK(eventually([&] { return !is_alive(kept); }));
  reap_orphans({kept});
  int status = 0;
  CHECK(::waitpid(kept, &status, 0) == kept);
  CHECK(WEXITSTATUS(status) == 3);
}

}  // namespace zeroth::launcher::orphans_test
