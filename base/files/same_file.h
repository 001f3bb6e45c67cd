// Comparisons of two open files, or of an open file and a name.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <optional>

namespace zeroth {

inline bool is_same_file(const struct stat& first, const struct stat& second) {
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Returns whether two descriptors refer to the same file, or nullopt if the system cannot report
// it.
inline std::optional<bool> is_same_file(int first, int second) {
  struct stat one {};
  struct stat other {};
  if (::fstat(first, &one) != 0 || ::fstat(second, &other) != 0) return std::nullopt;
  return is_same_file(one, other);
}

// Returns whether `name` in `directory` (AT_FDCWD: a path) still refers to the open file `fd`, that
// is, no process has replaced or removed it. Follows no link.
inline bool names_file(int fd, int directory, const char* name) {
  struct stat file {};
  struct stat named {};
  return ::fstat(fd, &file) == 0 && ::fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         is_same_file(file, named);
}

}  // namespace zeroth
