// Who saves into a folder of checkpoints. Each owner has a larger epoch than those before it, so
// that one that was taken for dead, and wakes up, sees that it is no longer the one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

class Owner {
 public:
  // From here on those before do not commit. `description` is for their messages. Other processes
  // may take the folder at the same time: each gets an epoch of its own.
  static Owner claim(std::shared_ptr<FileSystem> file_system, const std::string& description);

  int64_t generation() const { return generation_; }
  // Throws an Error with both epochs where the folder has a later owner.
  void check() const;

 private:
  Owner(std::shared_ptr<FileSystem> file_system, int64_t generation)
      : file_system_(std::move(file_system)), generation_(generation) {}

  std::shared_ptr<FileSystem> file_system_;
  int64_t generation_;
};

// "process 17 on host, since 2026-01-31 12:00:00 UTC"
std::string describe_this_process();

}  // namespace zeroth::checkpoint
