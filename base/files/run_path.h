// Paths of this program and of its libraries.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zeroth {

// Returns the directory that contains this program.
std::filesystem::path program_directory();

// Returns the directories of this program's run path, in which the loader searches its libraries,
// in order. Omits entries that are not absolute. Environment variables do not contribute.
std::vector<std::filesystem::path> run_path_directories();

// Returns the path of a library of ours that programs load with dlopen: beside this program, in its
// sibling lib, or on its run path.
std::optional<std::filesystem::path> find_program_library(const std::string& name);

}  // namespace zeroth
