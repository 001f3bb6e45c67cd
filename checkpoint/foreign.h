// Recognizes checkpoints of other programs by the contents of their directories.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

struct ForeignCheckpoint {
  std::string program;     // "Hugging Face's Trainer"
  std::string marker;      // file name that identifies it: "optimizer.pt"
  bool has_model = false;  // config.json and safetensors, which a run can start from
};

// Returns what the directory holds; nothing if it has no other program's marker, or has Zeroth's
// own.
std::optional<ForeignCheckpoint> find_foreign(FileSystem& file_system,
                                              const std::string& directory);

// Returns "out/checkpoint-5 is a checkpoint of ..., whose states are not supported: ..." with
// advice.
std::string describe(const ForeignCheckpoint& foreign, const std::filesystem::path& path);

}  // namespace zeroth::checkpoint
