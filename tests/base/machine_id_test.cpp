#include "base/machine/machine_id.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zeroth::machine_id_test {

TEST_CASE("all processes of a machine have one name for it, and whoever is told which one that") {
  const std::string id = machine_id();
  CHECK(id.starts_with(boot_id() + " "));
  CHECK(id == machine_id());
  CHECK(machine_id("left") == "named left");
  CHECK(machine_id("left") != machine_id("right"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(machine_id() == id ? 0 : 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a machine's name is never empty") {
  CHECK_FALSE(machine_name().empty());
}

}  // namespace zeroth::machine_id_test
