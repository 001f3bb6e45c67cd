// The owner of a directory of checkpoints: the process that saves into it. Each owner has a larger
// generation than its predecessors, so one that was presumed dead and wakes up detects its
// successor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

class Owner {
 public:
  // Claims the directory: from now on, earlier owners cannot commit. `description` appears in their
  // error messages. Other processes may claim it at the same time: each gets a generation of its
  // own.
  static Owner claim(std::shared_ptr<FileSystem> file_system, const std::string& description);

  int64_t generation() const { return generation_; }
  // Throws an Error with both generations if the directory has a later owner.
  void check() const;

 private:
  Owner(std::shared_ptr<FileSystem> file_system, int64_t generation)
      : file_system_(std::move(file_system)), generation_(generation) {}

  std::shared_ptr<FileSystem> file_system_;
  int64_t generation_;
};

// Returns "process 17 on host, since 2026-01-31 12:00:00 UTC".
std::string describe_this_process();

}  // namespace zeroth::checkpoint
