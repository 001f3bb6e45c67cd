#include "base/machine/standard_streams.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::standard_streams_test {
namespace {

int answer_fails_with(const std::string& reason) {
  const std::string message = message_of<Error>([] { print_output("an answer\n"); });
  return message.find(reason) == std::string::npos ? 1 : 0;
}

}  // namespace

TEST_CASE("no file lands in a descriptor that was closed at the start") {
  const ChildResult result = in_child([] {
    for (const int fd : {0, 1, 2}) ::close(fd);
    open_standard_streams();
    const int file = ::open("/proc/self/exe", O_RDONLY);
    char byte = 0;
    const bool empty = ::read(STDIN_FILENO, &byte, 1) == 0;
    const bool silent = write_all(STDOUT_FILENO, "a") && write_all(STDERR_FILENO, "b");
    return file > STDERR_FILENO && empty && silent && stdout_was_closed() ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("an answer that nobody can get is an error: a closed output, a full disk") {
  const ChildResult closed = in_child([] {
    ::close(STDOUT_FILENO);
    open_standard_streams();
    return answer_fails_with("standard output is closed");
  });
  CHECK(closed.status == 0);
  const ChildResult full = in_child([] {
    ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
    open_standard_streams();
    return answer_fails_with("standard output cannot be written: No space left on device");
  });
  CHECK(full.status == 0);
}

TEST_CASE(
    "a reader that leaves ends an answer as it ends any command, but fails only the write of "
    "a run") {
  const ChildResult result = in_child([] {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return 99;
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    open_standard_streams();
    if (write_all(STDOUT_FILENO, "step 1\n") || errno != EPIPE) return 98;
    print_output("an answer\n");
    return 97;
  });
  CHECK(result.status == -SIGPIPE);
  CHECK(result.err.empty());
}

TEST_CASE("a file beyond ulimit -f fails its write, and no signal ends the program") {
  const TempFolder directory;
  const ChildResult result = in_child([&directory] {
    open_standard_streams();
    const rlimit limit{10, 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const int file = ::open((directory / "file").c_str(), O_WRONLY | O_CREAT, 0600);
    return !write_all(file, "more than ten bytes") && errno == EFBIG ? 0 : 1;
  });
  CHECK(result.status == 0);
}

TEST_CASE("last words do not wait for a reader that is asleep") {
  const auto start = std::chrono::steady_clock::now();
  const ChildResult result = in_child([] {
    fill_standard_error();
    write_last_message("an error\n");
    return 0;
  });
  CHECK(result.status == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(in_child([] {
          write_last_message(std::string(3000, 'x'));
          return 0;
        }).err == std::string(3000, 'x'));
}

TEST_CASE("term_dumb: only a terminal that knows control codes has columns to redraw") {
  int terminal = -1, far_end = -1;
  winsize size{.ws_row = 20, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::openpty(&terminal, &far_end, nullptr, nullptr, &size) == 0);
  for (const char* term : {"xterm", "xterm-256color", "linux", "dumb-emacs-ansi"}) {
    CAPTURE(term);
    CHECK(terminal_columns(far_end, term) == 60);
  }
  for (const char* term : {static_cast<const char*>(nullptr), "", "dumb", "unknown"}) {
    CAPTURE(term);
    CHECK_FALSE(terminal_columns(far_end, term));
  }
  ::close(far_end);
  ::close(terminal);
  const FileDescriptor file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  CHECK_FALSE(terminal_columns(file.get(), "xterm"));
}

}  // namespace zeroth::standard_streams_test
