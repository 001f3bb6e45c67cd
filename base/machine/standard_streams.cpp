#include "base/machine/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

constexpr std::chrono::milliseconds kLastMessageTimeout{2000};

bool output_was_closed = false;

// Writes at most `size` bytes. Returns -1 and sets errno on failure.
ssize_t write_some(int fd, const char* data, size_t size) {
  ssize_t count = 0;
  do {
    count = ::write(fd, data, size);
  } while (count < 0 && errno == EINTR);
  return count;
}

// Waits until the descriptor is writable. Also works for a non-blocking one, which another program
// may share.
bool wait_writable(int fd, std::chrono::milliseconds limit) {
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, static_cast<int>(limit.count())) > 0;
}

// "dumb" and "unknown" are terminfo's names for a terminal without control codes.
bool knows_control_codes(const char* term) {
  const std::string_view name = term == nullptr ? "" : term;
  return !name.empty() && name != "dumb" && name != "unknown";
}

}  // namespace

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (fd == STDOUT_FILENO) output_was_closed = true;
    ::open("/dev/null", O_RDWR);  // opens as the lowest free descriptor, which is this one
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write_some(fd, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      wait_writable(fd, std::chrono::milliseconds(-1));
    } else {
      return false;
    }
  }
  return true;
}

void print_output(std::string_view text) {
  if (output_was_closed) throw Error("standard output is closed");
  if (!write_all(STDOUT_FILENO, text)) throw_output_error(errno);
}

void throw_output_error(int error) {
  if (error == EPIPE) {
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  throw Error("standard output cannot be written: {}", system_reason(error));
}

void write_last_message(std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + kLastMessageTimeout;
  while (!text.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !wait_writable(STDERR_FILENO, left)) return;
    // A pipe with any room accepts this many bytes without blocking.
    const ssize_t count =
        write_some(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (count < 0 && errno != EAGAIN) return;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
}

bool stdout_was_closed() {
  return output_was_closed;
}

std::optional<int> terminal_columns(int fd, const char* term) {
  if (::isatty(fd) == 0 || !knows_control_codes(term)) return std::nullopt;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace zeroth
