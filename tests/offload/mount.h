// File systems of their own for tests.
#pragma once

#include <doctest/doctest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace zeroth::offload {

// A file system of its own kind and size, where the machine allows it.
class Mount {
 public:
  Mount(const std::filesystem::path& directory, const char* kind, const char* options)
      : directory_(directory) {
    mounted_ = ::mount("test", directory.c_str(), kind, 0, options) == 0;
    if (!mounted_) MESSAGE("skipped: cannot mount ", kind, ": ", std::strerror(errno));
  }
  ~Mount() {
    if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  explicit operator bool() const { return mounted_; }

 private:
  std::filesystem::path directory_;
  bool mounted_;
};

}  // namespace zeroth::offload
