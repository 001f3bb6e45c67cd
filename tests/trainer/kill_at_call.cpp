// A library to be loaded before a program: its process is killed before its n-th call to the system
// that syncs or renames, counted from 1. KILL_AT=n; without it the number of calls is written to
// the file KILL_COUNT at the end.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tests/trainer/next_call.h"

namespace {

std::atomic<long> calls = 0;

void count() {
  const char* const at = std::getenv("KILL_AT");
  if (++calls == (at == nullptr ? 0 : std::atol(at))) ::kill(::getpid(), SIGKILL);
}

void report() {
  const char* const file = std::getenv("KILL_COUNT");
  if (file == nullptr) return;
  if (std::FILE* const out = std::fopen(file, "w")) {
    std::fprintf(out, "%ld\n", calls.load());
    std::fclose(out);
  }
}

struct Reporter {  // a program may leave out the destructors of what is static
  Reporter() { std::at_quick_exit(report); }
  ~Reporter() { report(); }
} reporter;

}  // namespace

extern "C" {

int fsync(int fd) {
  count();
  return next<int (*)(int)>("fsync")(fd);
}

int renameat(int from, const char* old_name, int to, const char* new_name) noexcept {
  count();
  return next<int (*)(int, const char*, int, const char*)>("renameat")(from, old_name, to,
                                                                       new_name);
}

int renameat2(int from, const char* old_name, int to, const char* new_name,
              unsigned int flags) noexcept {
  count();
  return next<int (*)(int, const char*, int, const char*, unsigned int)>("renameat2")(
      from, old_name, to, new_name, flags);
}

}  // extern "C"
