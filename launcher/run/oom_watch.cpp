#include "launcher/run/oom_watch.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "base/machine/cgroup.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth::launcher {

OomWatch::OomWatch(std::filesystem::path root) : root_(std::move(root)) {
  if (const auto group = find_cgroup("memory", root_)) {
    file_ = group->directory / (group->unified ? "memory.events" : "memory.oom_control");
    is_cgroup_counter_ = read().has_value();
  }
  if (!is_cgroup_counter_) file_ = root_ / "proc/vmstat";
  last_count_ = read();
}

std::optional<int64_t> OomWatch::read() const {
  return read_counter(file_, "oom_kill");
}

std::optional<int64_t> OomWatch::read_new_kills() {
  const auto now = read();
  if (!now || !last_count_) return std::nullopt;
  return *now - *std::exchange(last_count_, now);
}

// Explains an exit. The loader, and libraries before main, end a process that gets no memory by one
// of these, with cryptic messages.
std::string OomWatch::explain(const ExitStatus& exit_status) {
  constexpr int kNotLoaded = 127;
  if (exit_status == ExitStatus{true, SIGKILL}) return explain_kill();
  const bool may_lack_memory = exit_status.by_signal
                                   ? exit_status.code == SIGABRT || exit_status.code == SIGSEGV
                                   : exit_status.code == kNotLoaded;
  return may_lack_memory ? address_space_limit() : "";
}

std::string OomWatch::explain_kill() {
  const auto kills = read_new_kills();
  if (!kills) return "by a user or process, or out of memory: unknown here, but dmesg may show it";
  if (*kills <= 0) return "sent by a user or process, not by the kernel's out-of-memory killer";
  const auto machine = read_counter(root_ / "proc/meminfo", "MemTotal:");
  const auto limit = memory_limit(root_);
  std::string text =
      fmt::format("out of memory: the kernel's out-of-memory killer ended {} process{} of {}",
                  *kills, *kills == 1 ? "" : "es",
                  is_cgroup_counter_ ? "this control group" : "this machine meanwhile");
  if (limit) text += fmt::format("; the limit of the group is {}", format_bytes(*limit));
  if (machine) text += fmt::format("; the machine has {}", format_bytes(*machine * 1024));
  return text;
}

}  // namespace zeroth::launcher
