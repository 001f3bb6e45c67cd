#include "launcher/run/oom_watch.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "base/cgroup.h"
#include "base/process_limits.h"
#include "base/units.h"

namespace zeroth::launcher {
namespace {

constexpr const char* kKey = "oom_kill";

}  // namespace

OomWatch::OomWatch(std::filesystem::path root) : root_(std::move(root)) {
  if (const auto group = find_cgroup("memory", root_)) {
    file_ = group->folder / (group->unified ? "memory.events" : "memory.oom_control");
    of_cgroup_ = read().has_value();
  }
  if (!of_cgroup_) file_ = root_ / "proc/vmstat";
  seen_ = read();
}

std::optional<int64_t> OomWatch::read() const {
  return read_counter(file_, kKey);
}

std::optional<int64_t> OomWatch::take_new_kills() {
  const auto now = read();
  if (!now || !seen_) return std::nullopt;
  return *now - *std::exchange(seen_, now);
}

// The loader, and libraries before main, end a process that gets no memory by one of these, with
// words that only they understand.
std::string OomWatch::explain(const Ending& ending) {
  constexpr int kNotLoaded = 127;
  if (ending == Ending{true, SIGKILL}) return explain_kill();
  const bool lacks = ending.by_signal ? ending.number == SIGABRT || ending.number == SIGSEGV
                                      : ending.number == kNotLoaded;
  return lacks ? address_space_limit() : "";
}

std::string OomWatch::explain_kill() {
  const auto kills = take_new_kills();
  if (!kills) return "by somebody, or out of memory: nothing tells here, but dmesg may";
  if (*kills <= 0) return "somebody sent it: the kernel's out-of-memory killer did not";
  const auto machine = read_counter(root_ / "proc/meminfo", "MemTotal:");
  const auto limit = memory_limit(root_);
  std::string text = fmt::format(
      "out of memory: the kernel's out-of-memory killer ended {} process{} of {}", *kills,
      *kills == 1 ? "" : "es", of_cgroup_ ? "this control group" : "this machine meanwhile");
  if (limit) text += fmt::format("; the group may use {}", format_bytes(*limit));
  if (machine) text += fmt::format("; the machine has {}", format_bytes(*machine * 1024));
  return text;
}

}  // namespace zeroth::launcher
