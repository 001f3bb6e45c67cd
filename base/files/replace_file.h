// Atomic replacement of a file: a reader sees the complete old or the complete new contents.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/files/output_lock.h"

namespace zeroth {

// Writes "path.part" and renames it to `path`. Follows no link at either path. Throws an Error that
// names the path and the system's reason. Calls `guard` before it creates anything and again just
// before the rename; if `guard` throws, passes its exception on and keeps the old file.
void replace_file(const std::filesystem::path& path, std::string_view text,
                  const OutputGuard& guard = {});

}  // namespace zeroth
