// Check of a user's path to a file of samples.
#pragma once

#include <filesystem>
#include <string>

namespace zeroth::data {

// Returns why `path` is not a file of samples, what it is instead, and what to do. The result
// depends on its name, on its type (a directory, a pipe), and on the first bytes of a file
// (compressed, a table, an array of NumPy's). The text continues a message after the path: ": no
// such file", " is a folder, ...". Empty for a .txt, .bin, .jsonl or .json file.
std::string sample_file_error(const std::filesystem::path& path);

}  // namespace zeroth::data
