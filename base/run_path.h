#pragma once

#include <filesystem>
#include <vector>

namespace zeroth {

// The folder that holds this program.
std::filesystem::path program_directory();

// The folders of this program's run path, in their order: where the loader looks for its libraries.
// Entries that are not absolute are left out; no variable of the environment is part of it.
std::vector<std::filesystem::path> run_path_directories();

}  // namespace zeroth
