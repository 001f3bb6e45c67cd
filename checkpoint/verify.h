// Verifies every byte of a checkpoint, reading each once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

struct VerifyResult {
  // One error for each file that differs from what was written, with its corrupt chunks, and one
  // for each state whose chunks do not cover a tensor. Empty if the checkpoint is valid.
  std::vector<std::string> errors = {};
  std::vector<std::string> unlisted = {};  // files that the manifest does not list
  int64_t bytes = 0;                       // read
};

// Verifies the checkpoint in a directory of the file system; "" is its root. Throws
// CorruptCheckpoint if its manifest or the size of a file already shows that it is incomplete.
VerifyResult verify(FileSystem& file_system, const std::string& directory);

}  // namespace zeroth::checkpoint
