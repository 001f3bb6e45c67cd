// Every byte of a checkpoint, looked at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

struct VerifyResult {
  // One for each file that is not as it was written, with the pieces in it that are not, and one
  // for each state whose pieces do not make up a tensor. Empty: all is well.
  std::vector<std::string> errors = {};
  std::vector<std::string> unlisted = {};  // files that the manifest does not know
  int64_t bytes = 0;                       // that were read
};

// Of the checkpoint in a folder of the disk; "": in the disk's own. Throws CorruptCheckpoint where
// already its manifest or the size of a file says that it is not complete.
VerifyResult verify(FileSystem& file_system, const std::string& directory);

}  // namespace zeroth::checkpoint
