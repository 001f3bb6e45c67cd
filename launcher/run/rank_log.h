// Files with all that each rank prints (--enable_each_rank_log).
#pragma once

#include <ctime>
#include <filesystem>
#include <vector>

#include "base/file_descriptor.h"

namespace zeroth::launcher {

// Opens FOLDER/<YYYYmmddHHMMSS>_rank<N>.log for each rank, named as DeepSpeed does, in local time;
// where another job of that second was first, <YYYYmmddHHMMSS>-2_rank<N>.log and so on. Makes the
// folder where it is missing; never writes over a file. Throws Error with the path.
std::vector<FileDescriptor> open_rank_logs(const std::filesystem::path& folder, std::time_t now,
                                           int num_ranks);

}  // namespace zeroth::launcher
