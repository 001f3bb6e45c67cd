// What a user gives for a file of samples.
#pragma once

#include <filesystem>
#include <string>

namespace zeroth::data {

// Why `path` is no file of samples, what it is instead, and what to do: by its name, by what lies
// there (a folder, a pipe), and by the first bytes of a file (compressed, a table, an array of
// NumPy's). The text continues a message after the path: ": no such file", " is a folder, ...".
// Empty for a .txt, .bin, .jsonl or .json file.
std::string sample_file_error(const std::filesystem::path& path);

}  // namespace zeroth::data
