// A folder that plays the root of a machine: proc, sys, etc.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace zeroth {

class FakeSystem {
 public:
  const std::filesystem::path& root() const { return directory_.path(); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root() / file).parent_path());
    std::ofstream(root() / file) << text;
  }

  // This process's control group, version 2, is at `path`.
  void make_unified(const std::string& path) const {
    write("proc/self/cgroup", "0::" + path + "\n");
    write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
    write("sys/fs/cgroup" + path + "/cgroup.controllers", "cpu memory\n");
  }

 private:
  TempFolder directory_;
};

}  // namespace zeroth
