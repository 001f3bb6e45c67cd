// A file that a reader sees whole: as it was, or as it is.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/output_guard.h"

namespace zeroth {

// Writes "path.part" beside it and gives it the name. No link in the place of either is followed.
// Throws an Error that names the path and the system's reason, and what `guard` throws, which is
// asked before anything is made and once nothing but the name is missing; what stood there stays
// then.
void replace_file(const std::filesystem::path& path, std::string_view text,
                  const OutputGuard& guard = {});

}  // namespace zeroth
