#include "base/files/output_lock.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::output_lock_test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string refusal(const fs::path& target) {
  return message_of<Error>([&] { OutputLock{target}; });
}

}  // namespace

TEST_CASE("a second run is told who holds the output, and nothing is left behind") {
  const TempFolder directory;
  const fs::path out = directory / "deep/out";
  {
    const OutputLock first(out);
    CHECK(first.warning().empty());
    char host[256] = {};
    REQUIRE(::gethostname(host, sizeof(host) - 1) == 0);
    const std::string said = refusal(out);
    CHECK(has(said, out.string() + " is the output of a run that is still active (process " +
                        std::to_string(::getpid()) + " on " + host + ", since 20"));
    CHECK(message_of<Error>([&] { OutputLock::require_free(out); }) == said);
    fs::create_symlink("out", directory / "deep/link");
    CHECK(
        has(refusal(directory / "deep/link"), "link is the output of a run that is still active"));
    fs::remove(directory / "deep/link");
    const OutputLock neighbour(directory / "deep/other");
  }
  CHECK(fs::is_empty(directory.path()));
  OutputLock::require_free(out);
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("the lock of a killed run refuses nobody, and goes with the next one") {
  const TempFolder directory;
  const fs::path out = directory / "out";
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputLock lock(out);
    if (::write(ends[1], "l", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  CHECK(has(refusal(out), "process " + std::to_string(child)));
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(fs::exists(directory / "out.zeroth-lock"));
  CHECK_NOTHROW(OutputLock::require_free(out));
  {
    const OutputLock next(out);
    CHECK(has(refusal(out), "process " + std::to_string(::getpid())));
  }
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE(
    "the next round of a run takes over from one that is stopped, which ends when it wakes up") {
  const TempFolder directory;
  const fs::path out = directory / "out";
  const std::string run = "0123456789abcdef";
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const OutputLock lock(out, {run, 0});
      lock.check();
      if (::write(ends[1], "l", 1) != 1) ::_exit(1);
      ::raise(SIGSTOP);
      lock.check();
    } catch (const Error& error) {
      const std::string said = error.what();
      ::_exit(::write(ends[1], said.data(), said.size()) > 0 ? 7 : 1);
    }
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  // Another run does not, nor a round that says the same or nothing.
  const auto refused = [&](const OutputAttempt& mine) {
    const std::string said = message_of<Error>([&] { OutputLock{out, mine}; });
    CHECK(said == message_of<Error>([&] { OutputLock::require_free(out, mine); }));
    return has(said,
               "is the output of a run that is still active (process " + std::to_string(child));
  };
  CHECK(refused({"fedcba9876543210", 1}));
  CHECK(refused({run, 0}));
  CHECK(refused({"", 1}));
  CHECK_NOTHROW(OutputLock::require_free(out, {run, 1}));
  {
    const OutputLock next(out, {run, 1});
    CHECK_NOTHROW(next.check());
    REQUIRE(::kill(child, SIGCONT) == 0);
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 7);
    char text[512] = {};
    REQUIRE(::read(ends[0], text, sizeof(text) - 1) > 0);
    CHECK(has(text, out.string() + " was taken over by round 1 of this run (process " +
                        std::to_string(::getpid())));
    CHECK(has(text, ": this process, of round 0, exits and writes nothing more"));
    CHECK_NOTHROW(next.check());
    CHECK(has(refusal(out), "process " + std::to_string(::getpid())));
  }
  CHECK(fs::is_empty(directory.path()));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a round that is over neither begins behind the next one, nor goes on after its end") {
  const TempFolder directory;
  const std::string run = "0123456789abcdef";
  directory.write("out.zeroth-lock", "host 1 1 " + run + " 3\n");  // of a killed process
  CHECK(has(message_of<Error>([&] {
              OutputLock(directory / "out", {run, 2});
            }),
            "out belongs to round 3 of this run (process 1 on host, since 1970"));
  const OutputLock last(directory / "out", {run, 3});
  CHECK_NOTHROW(last.check());
  fs::remove(directory / "out.zeroth-lock");
  CHECK(has(message_of<Error>([&] { last.check(); }), "was taken over by an unknown process: "));
  const OutputLock plain(directory / "plain");
  fs::remove(directory / "plain.zeroth-lock");
  CHECK_NOTHROW(plain.check());
}

TEST_CASE("a round that ends leaves the lock of the next one, also where both are one file") {
  const TempFolder directory;
  const std::string run = "0123456789abcdef";
  const std::string of_next = "host 1 1 " + run + " 1\n";
  {
    const OutputLock lock(directory / "out", {run, 0});
    directory.write("out.zeroth-lock", of_next);  // as where nothing can be locked
    CHECK(has(message_of<Error>([&] { lock.check(); }), "was taken over by round 1 of this run"));
  }
  CHECK(read_text(directory / "out.zeroth-lock") == of_next);
  fs::remove(directory / "out.zeroth-lock");
  {
    const OutputLock lock(directory / "out", {run, 0});
    fs::remove(directory / "out.zeroth-lock");
    directory.write("out.zeroth-lock", "");  // its round begins
    CHECK(has(message_of<Error>([&] { lock.check(); }), "was taken over by an unknown process: "));
  }
  CHECK(read_text(directory / "out.zeroth-lock").empty());
}

TEST_CASE("of runs that start at the same time one has the output at any moment") {
  const TempFolder directory;
  directory.write("out.zeroth-lock", "of a killed run");
  std::atomic<int> inside = 0, taken = 0, wrong = 0;
  std::vector<std::jthread> runs;
  for (int run = 0; run < 4; ++run) {
    runs.emplace_back([&] {
      for (int round = 0; round < 40; ++round) {
        try {
          const OutputLock lock(directory / "out");
          if (++inside > 1) ++wrong;
          ++taken;
          std::this_thread::yield();
          --inside;
        } catch (const Error& error) {
          if (!has(error.what(), "is the output of a run that is still active")) ++wrong;
        }
      }
    });
  }
  runs.clear();
  CHECK(wrong == 0);
  CHECK(taken >= 1);
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("what is no lock in the lock's place is neither followed nor waited for") {
  const TempFolder directory;
  const fs::path victim = directory.write("victim", "precious");
  fs::create_symlink(victim, directory / "link.zeroth-lock");
  fs::create_hard_link(victim, directory / "name.zeroth-lock");
  fs::create_directory(directory / "folder.zeroth-lock");
  REQUIRE(::mkfifo((directory / "fifo.zeroth-lock").c_str(), 0600) == 0);
  CHECK(has(refusal(directory / "link"), "Too many levels of symbolic links"));
  CHECK(has(refusal(directory / "name"), "name.zeroth-lock is not a valid lock file"));
  CHECK(has(refusal(directory / "folder"), "Is a directory"));
  CHECK(has(refusal(directory / "fifo"), "fifo.zeroth-lock is not a valid lock file"));
  for (const char* name : {"link", "name", "folder", "fifo"}) {
    CHECK_NOTHROW(OutputLock::require_free(directory / name));
  }
  CHECK(read_text(victim) == "precious");
}

TEST_CASE("a lock that says something else is a lock all the same, and not repeated") {
  const TempFolder directory;
  const fs::path file = directory.write("out.zeroth-lock", "host\x1b[2J 1 1");
  const int fd = ::open(file.c_str(), O_RDWR);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  REQUIRE(::fcntl(fd, F_OFD_SETLK, &lock) == 0);
  const std::string said = refusal(directory / "out");
  CHECK(has(said, "a run that is still active (unknown process)"));
  CHECK_FALSE(has(said, "\x1b"));
  ::close(fd);
}

TEST_CASE("a lock's place that another user has taken in a shared folder is not used" *
          in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim") / "file";
  write_text(victim, "precious");
  const bool planted = as_nobody([&] {
    write_text(shared / "file.zeroth-lock", "");
    return fs::exists(shared / "file.zeroth-lock") &&
           ::symlink(victim.c_str(), (shared / "link.zeroth-lock").c_str()) == 0;
  });
  if (!planted) return;
  CHECK(has(refusal(shared / "file"), "is not a valid lock file (it belongs to uid 65534)"));
  CHECK(has(refusal(shared / "link"), "link.zeroth-lock cannot be created: "));
  CHECK(read_text(victim) == "precious");
}

}  // namespace zeroth::output_lock_test
