// A file system of a few bytes, to be full.
#pragma once

#include <doctest/doctest.h>
#include <sys/mount.h>

#include <filesystem>

namespace zeroth::trainer {

// An empty file system of its own at `place`, where one can be had; `options` as "size=400k".
class MountedDisk {
 public:
  MountedDisk(const std::filesystem::path& place, const char* options) : place_(place) {
    std::filesystem::create_directory(place);
    mounted_ = ::mount("tmpfs", place.c_str(), "tmpfs", 0, options) == 0;
    if (!mounted_) MESSAGE("skipped: nothing can be mounted here");
  }
  ~MountedDisk() {
    if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
  }
  MountedDisk(const MountedDisk&) = delete;
  MountedDisk& operator=(const MountedDisk&) = delete;

  bool mounted() const { return mounted_; }
  void make_read_only() const {
    CHECK(::mount("", place_.c_str(), "", MS_REMOUNT | MS_RDONLY, "") == 0);
  }

 private:
  std::filesystem::path place_;
  bool mounted_ = false;
};

}  // namespace zeroth::trainer
