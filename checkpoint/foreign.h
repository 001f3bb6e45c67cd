// Checkpoints of other programs, known by what is in their folders.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/disk.h"

namespace zeroth::checkpoint {

struct Foreign {
  std::string program;     // "Hugging Face's Trainer"
  std::string mark;        // the name in the folder by which it is known: "optimizer.pt"
  bool has_model = false;  // config.json and safetensors, from which a run can begin
};

// What the folder is; nothing where it has no mark of another program, or has this one's.
std::optional<Foreign> find_foreign(Disk& disk, const std::string& folder);

// "out/checkpoint-5 is a checkpoint of ... : its states are not read. ..." with what to do.
std::string describe(const Foreign& foreign, const std::filesystem::path& path);

}  // namespace zeroth::checkpoint
