// Verifies that chunks cover whole tensors, and every byte of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

// Checks that exactly one chunk covers each element of every stored state and of every state in
// `expected`, and that no other state exists if `expected` is given. Returns one error for each
// state that violates this, with its chunks, their files, and the first gap. Pure.
std::vector<std::string> coverage_errors(const std::vector<StoredFile>& files,
                                         const std::vector<StoredState>& expected = {});

struct VerifyResult {
  // One error for each file that differs from what was written, with its corrupt chunks, and one
  // for each state whose chunks do not cover a tensor. Empty if the checkpoint is valid.
  std::vector<std::string> errors = {};
  std::vector<std::string> unlisted = {};  // files that the manifest does not list
  int64_t bytes = 0;                       // read
};

// Verifies the checkpoint in a directory of the file system, reading each byte once; "" is its
// root. Throws CorruptCheckpoint if its manifest or the size of a file already shows that it is
// incomplete.
VerifyResult verify(FileSystem& file_system, const std::string& directory);

}  // namespace zeroth::checkpoint
