// Paths of this program and of its libraries.
#pragma once

#include <filesystem>
#include <vector>

namespace zeroth {

// Returns the directory that contains this program.
std::filesystem::path program_directory();

// Returns the directories of this program's run path, in which the loader searches its libraries,
// in order. Omits entries that are not absolute. Environment variables do not contribute.
std::vector<std::filesystem::path> run_path_directories();

}  // namespace zeroth
