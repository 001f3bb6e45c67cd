// Whether two open files, or an open file and a name, are one.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <optional>

namespace zeroth {

inline bool is_same_file(const struct stat& first, const struct stat& second) {
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Empty: the system does not tell.
inline std::optional<bool> is_same_file(int first, int second) {
  struct stat one {};
  struct stat other {};
  if (::fstat(first, &one) != 0 || ::fstat(second, &other) != 0) return std::nullopt;
  return is_same_file(one, other);
}

// Whether `name` in `directory` (AT_FDCWD: a path) is one of the open file `fd`: nobody has
// replaced or removed it. No link is followed.
inline bool names_file(int fd, int directory, const char* name) {
  struct stat file {};
  struct stat named {};
  return ::fstat(fd, &file) == 0 && ::fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         is_same_file(file, named);
}

}  // namespace zeroth
