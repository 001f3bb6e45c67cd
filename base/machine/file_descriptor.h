// An open file: its ownership, and whether another descriptor or a name refers to it, too.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace zeroth {

// Returns a path to the open file, for functions that accept paths. It stays valid even if the
// file's name is changed.
inline std::filesystem::path proc_fd_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

// A FileDescriptor owns a file descriptor and closes it in its destructor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ >= 0) ::close(release());
  }

 private:
  int fd_;
};

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
