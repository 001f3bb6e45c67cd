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
  Mount(const std::filesystem::path& folder, const char* kind, const char* options)
      : folder_(folder) {
    mounted_ = ::mount("test", folder.c_str(), kind, 0, options) == 0;
    if (!mounted_) MESSAGE("skipped: cannot mount ", kind, ": ", std::strerror(errno));
  }
  ~Mount() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  explicit operator bool() const { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool mounted_;
};

}  // namespace zeroth::offload
