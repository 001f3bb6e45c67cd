#include "launcher/rank_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace zeroth::launcher {

std::vector<FileDescriptor> open_rank_logs(const std::filesystem::path& folder, std::time_t now,
                                           int num_ranks) {
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error))
    throw Error("--enable_each_rank_log {}: it is a file, but should be a folder", folder.string());
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error("--enable_each_rank_log {}: the folder cannot be made: {}", folder.string(),
                error.message());
  std::vector<FileDescriptor> logs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string name = fmt::format("{:%Y%m%d%H%M%S}_rank{}.log", fmt::localtime(now), rank);
    const std::string file = (folder / name).string();
    logs.emplace_back(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (logs.back().get() < 0)
      throw Error("--enable_each_rank_log: {} cannot be made: {}", file, std::strerror(errno));
  }
  return logs;
}

}  // namespace zeroth::launcher
