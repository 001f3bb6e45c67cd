// Files that a job leaves for others: each rank's output (--enable_each_rank_log) and the
// launcher's pid (--save_pid).
#pragma once

#include <sys/types.h>

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/machine/file_descriptor.h"
#include "launcher/flags/cli.h"

namespace zeroth::launcher {

// Opens `directory`/<YYYYmmddHHMMSS>_rank<N>.log for each rank, N from `first_rank`, named as in
// DeepSpeed, in local time. If another job of the same second was first, the name is
// <YYYYmmddHHMMSS>-2_rank<N>.log and so on. Creates the directory if it is missing; never
// overwrites a file. Throws Error with the path.
std::vector<FileDescriptor> open_rank_logs(const std::filesystem::path& directory, std::time_t now,
                                           int num_ranks, int first_rank = 0);

// PidFile owns `directory`/<pid>.deepspeed, DeepSpeed's name, which contains the pid, while this
// object lives. It replaces the file of an earlier process with this pid. Throws Error.
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

// JobFiles owns the files that the flags request, for as long as the job runs.
class JobFiles {
 public:
  // `first_rank` is the first rank of this job. `launch_time` is in seconds since the epoch.
  JobFiles(const LaunchOptions& options, double launch_time, int first_rank);

  // Returns a log per rank, whose number may grow between attempts; empty if none are requested.
  std::vector<int> rank_logs(int num_ranks);

 private:
  std::string directory_;
  double launch_time_;
  int first_rank_;
  std::vector<FileDescriptor> logs_;
  std::optional<PidFile> pid_file_;
};

}  // namespace zeroth::launcher
