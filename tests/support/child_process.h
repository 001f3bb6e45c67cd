// A piece of a test in a process of its own: what may end it, or changes its descriptors.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>

namespace zeroth {

struct ChildResult {
  int status = -1;  // exit code; -signal if a signal killed it
  std::string err;
};

// Runs `work` in a child, which ends with what that returns. The child must come to its end by
// itself.
inline ChildResult in_child(const std::function<int()>& work) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(work());
  }
  ::close(ends[1]);
  ChildResult result;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    result.err.append(buffer.data(), static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

// In a child: a file that would become longer cannot be written any more, as under `ulimit -f`.
inline void limit_file_size(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace zeroth
