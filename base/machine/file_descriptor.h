// Ownership of an open file.
#pragma once

#include <unistd.h>

#include <filesystem>
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

}  // namespace zeroth
