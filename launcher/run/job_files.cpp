#include "launcher/run/job_files.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/machine/process_limits.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxJobsPerSecond = 100'000;  // in one second and one directory

// Opens new files. Returns empty, and leaves none, if one of them exists. Throws Error.
std::vector<FileDescriptor> open_new_files(const std::filesystem::path& directory,
                                           const std::string& job, int num_ranks, int first_rank) {
  std::vector<FileDescriptor> logs;
  std::vector<std::string> files;
  for (int rank = first_rank; rank < first_rank + num_ranks; ++rank) {
    const std::string file = (directory / fmt::format("{}_rank{}.log", job, rank)).string();
    logs.emplace_back(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (logs.back().get() < 0 && errno != EEXIST)
      throw Error("--enable_each_rank_log: {} cannot be created: {}", file, system_reason(errno));
    if (logs.back().get() < 0) {
      for (const std::string& made : files) ::unlink(made.c_str());
      return {};
    }
    files.push_back(file);
  }
  return logs;
}

}  // namespace

PidFile::PidFile(pid_t pid, const std::filesystem::path& directory)
    : path_(directory / fmt::format("{}.deepspeed", pid)) {
  ::unlink(path_.c_str());
  // Never follow a link that another user put into a world-writable directory.
  const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  const std::string text = std::to_string(pid);
  const bool written = file.get() >= 0 && ::write(file.get(), text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  if (!written)
    throw Error("--save_pid: {} cannot be written: {}", path_.string(), system_reason(errno));
}

PidFile::~PidFile() {
  ::unlink(path_.c_str());
}

std::vector<FileDescriptor> open_rank_logs(const std::filesystem::path& directory, std::time_t now,
                                           int num_ranks, int first_rank) {
  try {
    resolve_links(directory);
  } catch (const Error& error) {
    throw Error("--enable_each_rank_log {}", error.what());
  }
  std::error_code error;
  if (std::filesystem::exists(directory, error) && !std::filesystem::is_directory(directory, error))
    throw Error("--enable_each_rank_log {}: it is a file, but should be a folder",
                directory.string());
  std::filesystem::create_directories(directory, error);
  if (error)
    throw Error("--enable_each_rank_log {}: the folder cannot be created: {}", directory.string(),
                system_reason(error.value()));
  const std::string timestamp = fmt::format("{:%Y%m%d%H%M%S}", fmt::localtime(now));
  for (int job = 1; job <= kMaxJobsPerSecond; ++job) {
    const std::string name = job == 1 ? timestamp : fmt::format("{}-{}", timestamp, job);
    auto logs = open_new_files(directory, name, num_ranks, first_rank);
    if (!logs.empty()) return logs;
  }
  throw Error("--enable_each_rank_log {}: there are already {} jobs of the same second, {}",
              directory.string(), kMaxJobsPerSecond, timestamp);
}

JobFiles::JobFiles(const LaunchOptions& options, double launch_time, int first_rank)
    : directory_(options.rank_log_directory), launch_time_(launch_time), first_rank_(first_rank) {
  if (options.save_pid) pid_file_.emplace(::getpid());
}

std::vector<int> JobFiles::rank_logs(int num_ranks) {
  if (directory_.empty()) return {};
  const int known = static_cast<int>(logs_.size());
  if (num_ranks > known)
    for (FileDescriptor& log : open_rank_logs(directory_, static_cast<std::time_t>(launch_time_),
                                              num_ranks - known, first_rank_ + known))
      logs_.push_back(std::move(log));
  std::vector<int> files;
  for (int rank = 0; rank < num_ranks; ++rank)
    files.push_back(logs_[static_cast<size_t>(rank)].get());
  return files;
}

}  // namespace zeroth::launcher
