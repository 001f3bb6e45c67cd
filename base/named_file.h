// Whether a name still leads to an open file.
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

}  // namespace zeroth
