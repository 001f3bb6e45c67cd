// Another user of this machine, for tests of what others may do in a folder like /tmp.
#pragma once

#include <doctest/doctest.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace zeroth {

inline constexpr uid_t kNobody = 65534;

// Runs `action` as that user, in a process of its own. False, with a message, where this process
// may not become another user.
template <typename Action>
bool as_nobody(Action action) {
  constexpr int kMayNot = 77;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      ::_exit(kMayNot);
    }
    ::_exit(action() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kMayNot) {
    MESSAGE("skipped: this process may not become another user");
    return false;
  }
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return true;
}

// As /tmp: all may make files in it, and remove their own only.
class StickyFolder {
 public:
  StickyFolder() {
    using std::filesystem::perms;
    std::filesystem::permissions(around_.path(), perms{0755});
    std::filesystem::create_directory(path());
    std::filesystem::permissions(path(), perms{01777});
  }

  std::filesystem::path path() const { return around_.path() / "shared"; }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }
  // A folder beside it, to which nobody else may write.
  std::filesystem::path own(const std::string& name) const {
    std::filesystem::create_directory(around_.path() / name);
    return around_.path() / name;
  }

 private:
  TempFolder around_;
};

}  // namespace zeroth
