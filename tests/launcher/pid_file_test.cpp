#include "launcher/run/pid_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "base/error.h"
#include "tests/launcher/launched.h"

namespace zeroth::launcher {

TEST_CASE("the pid stands in the file while its owner lives") {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "4711.deepspeed";
  {
    const PidFile pid_file(4711, folder.path());
    CHECK(pid_file.path() == file);
    CHECK(read_text(file) == "4711");
  }
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("what a former process left is replaced, and a link is not followed") {
  const TempFolder folder;
  const std::filesystem::path victim = folder.path() / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, folder.path() / "7.deepspeed");
  const PidFile pid_file(7, folder.path());
  CHECK(read_text(folder.path() / "7.deepspeed") == "7");
  CHECK(read_text(victim) == "precious");
}

TEST_CASE("a folder that is not there is an error with the path") {
  CHECK_THROWS_WITH_AS(PidFile(7, "/no/such"),
                       "--save_pid: /no/such/7.deepspeed cannot be written: No such file or "
                       "directory",
                       Error);
}

}  // namespace zeroth::launcher
