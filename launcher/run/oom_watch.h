// Detects whether a rank ended for lack of memory: by the counters of the kernel's out-of-memory
// killer before and after, or by a limit on the address space.
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
  // if the cgroup has none. `root` is as in cgroup.h.
  explicit OomWatch(std::filesystem::path root = "/");

  // Returns the number of processes killed since the last call, or since the start; empty if
  // nothing counts them.
  std::optional<int64_t> read_new_kills();

  // Explains an exit that the launcher did not request, to follow "killed by SIGKILL"; empty if
  // nothing is known. A SIGKILL consumes new kills.
  std::string explain(const ExitStatus& exit_status);

  // Explains a SIGKILL.
  std::string explain_kill();

 private:
  std::optional<int64_t> read() const;

  std::filesystem::path root_;
  std::filesystem::path file_;
  bool is_cgroup_counter_ = false;
  std::optional<int64_t> last_count_;
};

}  // namespace zeroth::launcher
