// A piece of a test in a process of its own: what may end it, or changes its descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
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

// Makes a full pipe that nobody reads the standard error of this process.
inline void fill_standard_error() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_NONBLOCK) != 0) return;
  while (::write(ends[1], "x", 1) == 1) {
  }
  ::fcntl(ends[1], F_SETFL, 0);  // whoever writes now waits
  ::dup2(ends[1], STDERR_FILENO);
}

// The state letter of a process: 'T' while it is stopped, '-' when it is gone.
inline char state_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(in), {}};
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '-' : stat[name_end + 2];
}

// Continues the calling process when it will have been stopped for so long. To be called before it
// has threads.
inline void continue_when_stopped_for(std::chrono::milliseconds time) {
  const pid_t me = ::getpid();
  if (::fork() != 0) return;
  while (state_of(me) != 'T') {
    if (::getppid() != me) ::_exit(1);  // it has ended
    ::usleep(1000);
  }
  ::usleep(static_cast<useconds_t>(time.count() * 1000));
  ::kill(me, SIGCONT);
  ::_exit(0);
}

}  // namespace zeroth
