// Whether a name, or another open file, is one with an open file.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

namespace zeroth {

// Whether `name` in `folder` (AT_FDCWD: a path) is one of the open file `fd`: nobody has replaced
// or removed it. No link is followed.
inline bool is_name_of(int fd, int folder, const char* name) {
  struct stat file {};
  struct stat named {};
  return ::fstat(fd, &file) == 0 && ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         file.st_ino == named.st_ino && file.st_dev == named.st_dev;
}

// Whether these open files are known to be two.
inline bool are_different(int first, int second) {
  struct stat one {};
  struct stat other {};
  return ::fstat(first, &one) == 0 && ::fstat(second, &other) == 0 &&
         (one.st_ino != other.st_ino || one.st_dev != other.st_dev);
}

}  // namespace zeroth
