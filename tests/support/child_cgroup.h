// A memory control group for a test, below this process's own.
#pragma once

#include <filesystem>
#include <string>

namespace zeroth {

class ChildCgroup {
 public:
  // Makes it where that is possible, with this limit and no swap; otherwise obstacle() says why
  // not.
  explicit ChildCgroup(int64_t limit_bytes);
  ChildCgroup(const ChildCgroup&) = delete;
  ChildCgroup& operator=(const ChildCgroup&) = delete;
  ~ChildCgroup();  // once no process is in it

  const std::string& obstacle() const { return obstacle_; }
  std::filesystem::path processes() const { return directory_ / "cgroup.procs"; }

 private:
  std::filesystem::path directory_;
  std::string obstacle_;
};

}  // namespace zeroth
