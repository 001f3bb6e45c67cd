// Text files that grow by whole lines, looked through to cut those at their end again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace zeroth {

// Of a longer line only so much is shown.
inline constexpr size_t kMaxLineBytes = size_t{1} << 16;

struct FileLine {
  std::string_view text;  // without "\n" or "\r\n"
  int64_t begin = 0;      // where it stands in the file, its end included
  int64_t end = 0;
  bool whole = true;  // the last line of a file may lack its end
};

// All lines of a regular file from the first to the last, in little memory. Throws an Error that
// names the path and the reason.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const FileLine&)>& visit);

// The file keeps its first `bytes`: in one call to the system, so that a kill leaves it as it was
// or cut. So for errors.
void truncate_file(const std::filesystem::path& path, int64_t bytes);

}  // namespace zeroth
