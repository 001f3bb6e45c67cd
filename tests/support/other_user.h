// A stranger on this machine: the user nobody.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>

namespace zeroth::testing {

constexpr unsigned kNobody = 65534;

// What keeps this process from becoming another user; empty: nothing does.
inline const char* obstacle_to_nobody() {
  return ::geteuid() == 0 ? "" : "only root can become nobody";
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
    if (::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0) {
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

}  // namespace zeroth::testing
