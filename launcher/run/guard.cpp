#include "launcher/run/guard.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"
#include "launcher/run/rank_process.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxSearches = 200;
constexpr int kUsualFiles = 1024;
constexpr std::chrono::milliseconds kSearchPause{10}, kOrphanPause{2};

// Returns the ids of all processes.
std::vector<pid_t> process_ids() {
  std::vector<pid_t> ids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored))
    if (const auto pid = parse_number<pid_t>(entry.path().filename().string())) ids.push_back(*pid);
  return ids;
}

bool has_mark(pid_t pid, const std::string& entry) {
  std::ifstream in(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(in), {}};
  return ('\0' + environment).find('\0' + entry + '\0') != std::string::npos;
}

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

// Parses /proc/PID/stat: "pid (name) state parent ...", where the name may contain any character.
pid_t parent_pid(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), stat, '\0');
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || stat.size() < name_end + 5) return -1;
  pid_t parent = -1;
  std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
  return parent;
}

}  // namespace

Guard::Guard()
    : mark_(fmt::format("{}.{}", ::getpid(),
                        std::chrono::system_clock::now().time_since_epoch().count())) {
  start();
}

// Running ranks do not hold the pipe: exec closes it. All signals are blocked during the fork: no
// handler of the launcher may run in the guard, where it would write to the launcher's pipes.
void Guard::start() {
  Pipe pipe = make_pipe();
  pipe_ = std::move(pipe.write);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = ::fork();
  const int error = errno;
  if (pid_ == 0) run_guard(pipe.read.get(), mark_);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0)
    throw Error("cannot start the process that guards the ranks: {}", system_reason(error));
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
  const std::string entry = std::string(Guard::kVariable) + "=" + mark;
  std::set<pid_t> killed;
  for (int i = 0; i < kMaxSearches; ++i) {
    std::vector<pid_t> found = process_ids();
    std::erase_if(found, [&](pid_t pid) { return !has_mark(pid, entry); });
    if (found.empty()) break;
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    killed.insert(found.begin(), found.end());
    std::this_thread::sleep_for(kSearchPause);
  }
  return static_cast<int>(killed.size());
}

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    throw Error("the launcher cannot adopt orphaned processes of ranks: {}", system_reason(errno));
}

void reap_orphans(const std::vector<pid_t>& ranks) {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    if (std::find(ranks.begin(), ranks.end(), info.si_pid) != ranks.end()) return;
    ::waitpid(info.si_pid, nullptr, 0);
    info = {};
  }
}

bool kill_orphans(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {  // there are children
    if (std::chrono::steady_clock::now() > end) return false;
    for (const pid_t pid : process_ids())
      if (parent_pid(pid) == ::getpid()) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(kOrphanPause);
  }
  return true;
}

}  // namespace zeroth::launcher
