#include "base/affinity.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace zeroth {

using Cores = std::vector<int>;

TEST_CASE("binding narrows the process's own cores") {
  const Cores before = allowed_cores();
  REQUIRE_FALSE(before.empty());
  REQUIRE(bind_to_cores({before.back()}) == 0);
  CHECK(allowed_cores() == Cores{before.back()});
  REQUIRE(bind_to_cores(before) == 0);
  CHECK(allowed_cores() == before);
}

TEST_CASE("the cores of another process are its own, and not known once it is gone") {
  const Cores before = allowed_cores();
  REQUIRE(bind_to_cores({before.back()}) == 0);
  const pid_t child = ::fork();
  if (child == 0)
    while (true) ::pause();
  REQUIRE(bind_to_cores(before) == 0);
  REQUIRE(child > 0);
  CHECK(cores_of(child) == Cores{before.back()});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(cores_of(child));
}

}  // namespace zeroth
