// Files that a job leaves for others to read: all that each rank prints (--enable_each_rank_log),
// and the number of the launcher's process (--save_pid).
#pragma once

#include <sys/types.h>

#include <ctime>
#include <filesystem>
#include <vector>

#include "base/file_descriptor.h"

namespace zeroth::launcher {

// Opens FOLDER/<YYYYmmddHHMMSS>_rank<N>.log for each rank, N from `first_rank`, named as DeepSpeed
// does, in local time; where another job of that second was first, <YYYYmmddHHMMSS>-2_rank<N>.log
// and so on. Makes the folder where it is missing; never writes over a file. Throws Error with the
// path.
std::vector<FileDescriptor> open_rank_logs(const std::filesystem::path& directory, std::time_t now,
                                           int num_ranks, int first_rank = 0);

// FOLDER/<pid>.deepspeed, DeepSpeed's name, with the pid in it, for as long as this object lives.
// What an earlier process of this number left there is replaced. Throws Error.
class PidFile {
 public:
  explicit PidFile(pid_t pid, const std::filesystem::path& directory = "/tmp");
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace zeroth::launcher
