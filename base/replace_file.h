// A file that a reader sees whole: as it was, or as it is.
#pragma once

#include <filesystem>
#include <string_view>

namespace zeroth {

// Writes "path.part" beside it and gives it the name. No link in the place of either is followed.
// Throws an Error that names the path and the system's reason; what stood there stays then.
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace zeroth
