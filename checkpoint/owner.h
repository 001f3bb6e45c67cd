// Who saves into a folder of checkpoints. Each owner has a larger epoch than those before it, so
// that one that was taken for dead, and wakes up, sees that it is no longer the one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/disk.h"

namespace zeroth::checkpoint {

class Owner {
 public:
  // From here on those before do not commit. `who` is for their messages. Other processes may take
  // the folder at the same time: each gets an epoch of its own.
  static Owner take(std::shared_ptr<Disk> disk, const std::string& who);

  int64_t epoch() const { return epoch_; }
  // Throws an Error with both epochs where the folder has a later owner.
  void check() const;

 private:
  Owner(std::shared_ptr<Disk> disk, int64_t epoch) : disk_(std::move(disk)), epoch_(epoch) {}

  std::shared_ptr<Disk> disk_;
  int64_t epoch_;
};

// "process 17 on host, since 2026-01-31 12:00:00 UTC"
std::string this_process();

}  // namespace zeroth::checkpoint
