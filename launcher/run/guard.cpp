#include "launcher/run/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxSearches = 200;
constexpr int kUsualFiles = 1024;
constexpr std::chrono::milliseconds kPause{10};

std::string unique_mark() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}.{}", ::getpid(), now.count());
}

bool has_mark(const std::filesystem::path& process, const std::string& entry) {
  std::ifstream in(process / "environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(in), {}};
  return ('\0' + environment).find('\0' + entry + '\0') != std::string::npos;
}

std::set<pid_t> find_marked(const std::string& mark) {
  const std::string entry = std::string(Guard::kVariable) + "=" + mark;
  std::set<pid_t> found;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (has_mark(process.path(), entry)) found.insert(std::stoi(name));
  }
  return found;
}

// SignalBlocker blocks all signals during the fork: no handler of the launcher may run in the
// guard, where it would write to the launcher's pipes.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlocker() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;

 private:
  sigset_t before_;
};

// Releases all resources of the launcher: readers of its outputs must see their end.
void detach_from_launcher(int fd) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGTSTP}) ::signal(signal, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::dup2(fd, STDIN_FILENO);
  if (::close_range(STDIN_FILENO + 1, ~0U, 0) != 0)  // kernels before 5.9
    for (int other = STDIN_FILENO + 1; other < kUsualFiles; ++other) ::close(other);
  ::prctl(PR_SET_NAME, "zeroth-guard");
}

// Waits for the launcher. A byte means a regular exit, the end of the pipe that the launcher was
// killed.
[[noreturn]] void run_guard(int pipe, const std::string& mark) {
  detach_from_launcher(pipe);
  char byte = 0;
  ssize_t count = 0;
  do {
    count = ::read(STDIN_FILENO, &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) kill_marked(mark);
  while (true) ::raise(SIGKILL);  // no destructor of the launcher's objects may run here
}

}  // namespace

Guard::Guard() : mark_(unique_mark()) {
  start();
}

// Running ranks do not hold the pipe: exec closes it.
void Guard::start() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("cannot create a pipe: {}", system_reason(errno));
  const FileDescriptor read_end(ends[0]);
  pipe_ = FileDescriptor(ends[1]);
  const SignalBlocker blocker;
  pid_ = ::fork();
  if (pid_ < 0)
    throw Error("cannot start the process that guards the ranks: {}", system_reason(errno));
  if (pid_ == 0) run_guard(read_end.get(), mark_);
}

std::string Guard::restart_if_exited() {
  if (pid_ < 0 || ::waitpid(pid_, nullptr, WNOHANG) != pid_) return "";
  pid_ = -1;
  try {
    if (--restarts_left_ < 0) throw Error("it was killed too often");
    start();
  } catch (const Error& error) {
    return fmt::format(
        "the process that guards the job was killed and cannot be replaced ({}): the ranks may "
        "outlive a launcher that is killed",
        error.what());
  }
  return "the process that guards the job was killed and has been replaced";
}

Guard::~Guard() {
  if (pid_ < 0) return;
  // If the guard has exited, this write raises SIGPIPE, which the launcher ignores.
  [[maybe_unused]] const auto written = ::write(pipe_.get(), "", 1);
  pipe_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int kill_marked(const std::string& mark) {
  std::set<pid_t> killed;
  for (int i = 0; i < kMaxSearches; ++i) {
    const std::set<pid_t> found = find_marked(mark);
    if (found.empty()) break;
    for (const pid_t pid : found) {
      ::kill(pid, SIGKILL);
      killed.insert(pid);
    }
    std::this_thread::sleep_for(kPause);
  }
  return static_cast<int>(killed.size());
}

}  // namespace zeroth::launcher
