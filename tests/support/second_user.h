// Another user of this machine, nobody, for tests of what a stranger can do to a run. They are
// cases of the suite "neighbours", which ctest runs by itself and shows as skipped where they
// cannot be run: TEST_CASE("..." * in_neighbours).
#pragma once

#include <doctest/doctest.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace zeroth {

inline constexpr uid_t kNobody = 65534;
inline const doctest::test_suite in_neighbours("neighbours");

// False, with the message that ctest looks for (cmake/Zeroth.cmake), where this process may not
// become that user.
inline bool may_become_nobody() {
  const doctest::detail::TestCase& test = *doctest::getContextOptions()->currentTest;
  REQUIRE(std::string_view(test.m_test_suite) == "neighbours");
  if (::geteuid() == 0) return true;
  MESSAGE("skipped: only root can become nobody");
  return false;
}

inline bool become_nobody() {
  return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

// A process of that user which runs `work`, writes the text that comes of it, and waits to be
// killed: what it opened stays open.
class Nobody {
 public:
  explicit Nobody(const std::function<std::string()>& work) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) live(work, ends[1]);
    ::close(ends[1]);
    char text[4096];
    for (ssize_t count = 0; (count = ::read(ends[0], text, sizeof(text))) > 0;)
      said_.append(text, static_cast<size_t>(count));
    ::close(ends[0]);
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  ~Nobody() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  const std::string& said() const { return said_; }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void live(const std::function<std::string()>& work, int out) {
    std::string text = "cannot become nobody";
    if (become_nobody()) {
      try {
        text = work();
      } catch (const std::exception& error) {
        text = error.what();
      }
    }
    [[maybe_unused]] const auto written = ::write(out, text.data(), text.size());
    ::close(out);
    while (true) ::pause();
  }

  pid_t pid_ = -1;
  std::string said_;
};

// Does `action` as that user, which returns whether it could be done. False where this process may
// not become him.
template <typename Action>
bool as_nobody(Action action) {
  if (!may_become_nobody()) return false;
  const Nobody nobody([&]() -> std::string { return action() ? "done" : "refused"; });
  REQUIRE(nobody.said() == "done");
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
