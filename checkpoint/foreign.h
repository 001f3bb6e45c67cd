// Checkpoints of other programs, known by what is in their folders.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

struct ForeignCheckpoint {
  std::string program;     // "Hugging Face's Trainer"
  std::string marker;      // the name in the folder by which it is known: "optimizer.pt"
  bool has_model = false;  // config.json and safetensors, from which a run can begin
};

// What the folder is; nothing where it has no mark of another program, or has this one's.
std::optional<ForeignCheckpoint> find_foreign(FileSystem& file_system,
                                              const std::string& directory);

// "out/checkpoint-5 is a checkpoint of ... : its states are not read. ..." with what to do.
std::string describe(const ForeignCheckpoint& foreign, const std::filesystem::path& path);

}  // namespace zeroth::checkpoint
