// The file by which a script finds the launcher (--save_pid).
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace zeroth::launcher {

// FOLDER/<pid>.deepspeed, DeepSpeed's name, with the pid in it, until this ends. What an earlier
// process of this number left there is replaced. Throws Error.
class PidFile {
 public:
  explicit PidFile(pid_t pid, const std::filesystem::path& folder = "/tmp");
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace zeroth::launcher
