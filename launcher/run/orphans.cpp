#include "launcher/run/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth::launcher {
namespace {

constexpr std::chrono::milliseconds kPause{2};

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// Parses /proc/PID/stat: "pid (name) state parent ...", where the name may contain any character.
pid_t parent_pid(const std::string& pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + pid + "/stat"), stat, '\0');
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || stat.size() < name_end + 5) return -1;
  pid_t parent = -1;
  std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
  return parent;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_pid(name) == ::getpid()) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

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
  while (has_children()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (const pid_t child : children()) ::kill(child, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace zeroth::launcher
