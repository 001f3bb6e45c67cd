// Whether the kernel's out-of-memory killer was at work, by its counters before and after.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace zeroth::launcher {

class OomWatch {
 public:
  // Reads the counter now: that of this process's memory cgroup (version 1 or 2), or the machine's
  // where the group has none. `root` as in cgroup.h.
  explicit OomWatch(std::filesystem::path root = "/");

  // Processes that were ended since the last call, or since the start; empty where nothing counts.
  std::optional<int64_t> take_new_kills();

  // Why a SIGKILL came that the launcher did not send, to stand behind "killed by SIGKILL". Takes
  // new kills.
  std::string explain_kill();

 private:
  std::optional<int64_t> read() const;

  std::filesystem::path root_;
  std::filesystem::path file_;
  bool of_cgroup_ = false;
  std::optional<int64_t> seen_;
};

}  // namespace zeroth::launcher
