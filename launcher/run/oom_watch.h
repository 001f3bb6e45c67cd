// Whether memory was lacking when a rank ended: whether the kernel's out-of-memory killer was at
// work, by its counters before and after, or address space is limited.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/run/exit_status.h"

namespace zeroth::launcher {

class OomWatch {
 public:
  // Reads the counter now: that of this process's memory cgroup (version 1 or 2), or the machine's
  // where the group has none. `root` as in cgroup.h.
  explicit OomWatch(std::filesystem::path root = "/");

  // Processes that were ended since the last call, or since the start; empty where nothing counts.
  std::optional<int64_t> read_new_kills();

  // Why a rank ended so that was not told to by the launcher, to stand behind "killed by SIGKILL";
  // empty where nothing is known. Of SIGKILL it takes new kills.
  std::string explain(const ExitStatus& exit_status);

  // Why a SIGKILL came.
  std::string explain_kill();

 private:
  std::optional<int64_t> read() const;

  std::filesystem::path root_;
  std::filesystem::path file_;
  bool is_cgroup_counter_ = false;
  std::optional<int64_t> last_count_;
};

}  // namespace zeroth::launcher
