// Text files that grow by whole lines: reading them line by line, and truncating them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace zeroth {

// Maximum bytes of a line that are passed to a visitor. A longer line is truncated.
inline constexpr size_t kMaxLineBytes = size_t{1} << 16;

struct FileLine {
  std::string_view text;  // without "\n" or "\r\n"
  int64_t begin = 0;      // [begin, end) in the file, the "\n" included
  int64_t end = 0;
  bool whole = true;  // false: the last line of the file has no "\n"
};

// Calls `visit` for each line of a regular file in order, in little memory. Throws an Error that
// names the path and the reason.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const FileLine&)>& visit);

// Truncates the file to its first `bytes` in one system call, so that a kill leaves it either
// unchanged or truncated. Throws an Error like for_each_line().
void truncate_file(const std::filesystem::path& path, int64_t bytes);

}  // namespace zeroth
