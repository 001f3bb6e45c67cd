// Whether two open files, or an open file and a name, are one.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <optional>

namespace zeroth {

inline bool are_one_file(const struct stat& first, const struct stat& second) {
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Empty: the system does not tell.
inline std::optional<bool> are_one_file(int first, int second) {
  struct stat one {};
  struct stat other {};
  if (::fstat(first, &one) != 0 || ::fstat(second, &other) != 0) return std::nullopt;
  return are_one_file(one, other);
}

// Whether `name` in `folder` (AT_FDCWD: a path) is one of the open file `fd`: nobody has replaced
// or removed it. No link is followed.
inline bool is_name_of(int fd, int folder, const char* name) {
  struct stat file {};
  struct stat named {};
  return ::fstat(fd, &file) == 0 && ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         are_one_file(file, named);
}

}  // namespace zeroth
