// An open file with an owner.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace zeroth {

// What takes a path then works on the file that is open, wherever its name leads by now.
inline std::filesystem::path proc_fd_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

// A file descriptor that is closed by its owner's end.
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
