// A library to be loaded before a program: its process sends itself the signal SIGNAL once, as soon
// as it has written the text SIGNAL_BEHIND somewhere; where that is empty, as soon as it has given
// pages back, as of a file that it is through with.
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "tests/trainer/next_call.h"

namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void send() {
  static std::atomic<bool> sent = false;
  if (!sent.exchange(true)) ::kill(::getpid(), std::atoi(variable("SIGNAL").data()));
}

void observed(const void* bytes, size_t size) {
  const std::string_view text = variable("SIGNAL_BEHIND");
  const std::string_view written(static_cast<const char*>(bytes), size);
  if (!text.empty() && written.find(text) != written.npos) send();
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  const ssize_t written = next<ssize_t (*)(int, const void*, size_t)>("write")(fd, bytes, size);
  observed(bytes, size);
  return written;
}

ssize_t writev(int fd, const iovec* parts, int count) {
  const ssize_t written = next<ssize_t (*)(int, const iovec*, int)>("writev")(fd, parts, count);
  for (int i = 0; i < count; ++i) observed(parts[i].iov_base, parts[i].iov_len);
  return written;
}

int madvise(void* pages, size_t size, int advice) noexcept {
  const int result = next<int (*)(void*, size_t, int)>("madvise")(pages, size, advice);
  if (advice == MADV_DONTNEED && variable("SIGNAL_BEHIND").empty()) send();
  return result;
}

}  // extern "C"
