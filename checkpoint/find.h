// Which checkpoints a folder holds, and which of them are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {

struct CheckpointInfo {
  std::string name;  // of its folder on the disk
  int64_t step = 0;
  int64_t bytes = 0;         // of all files; of one that is not complete, as far as they are there
  int64_t written = 0;       // seconds since 1970
  SaveAttempt attempt = {};  // {0, 0} of one that is not complete
  uint32_t crc = 0;          // of its manifest
  std::string fault = {};    // why it is not complete: file, and what is wrong; empty: it is

  std::optional<int64_t> best_step = {};  // of the run's best model as this one knew it

  bool weights_only = false;  // a model without states, of which no run goes on
  // It has the name of a checkpoint and nothing that one consists of: somebody else's.
  bool is_unrelated = false;

  bool complete() const { return fault.empty(); }
};

// Those of a folder of checkpoints, by step. Manifests and sizes are looked at; `latest` is not. A
// checkpoint that was about to be replaced when the machine ended is found under its other name.
// One that a run removes or replaces meanwhile is left out, or found as it is then.
std::vector<CheckpointInfo> list_checkpoints(FileSystem& file_system);

// The one that was saved last of all that are complete and have states, whatever its step; null
// where none is.
const CheckpointInfo* newest(const std::vector<CheckpointInfo>& found);

// Whether there is nothing of this name any more, or another checkpoint than the one that was
// found: a run that saves there keeps only its newest ones, and may save a step again.
bool was_removed(FileSystem& file_system, const CheckpointInfo& found);

// What a path of the user leads to.
struct CheckpointLocation {
  std::shared_ptr<FileSystem>
      file_system;                        // of the folder of checkpoints; null where there is none
  std::optional<std::string> checkpoint;  // the name on it where the path is that of one checkpoint
};
// `path`: an output with checkpoints/ in it, that folder itself, or one of the checkpoints, also by
// the name that Hugging Face's Trainer would give it ("out/checkpoint-8").
CheckpointLocation locate(const std::filesystem::path& path);

// Calls `action` with the name of the checkpoint that `place` is, or of the newest one there. Where
// that one has left meanwhile it is called again, with the newest one of then. Throws an Error
// where there is none, or where the only one that is meant has left.
void with_selected_checkpoint(const CheckpointLocation& place,
                              const std::function<void(const std::string& name)>& action);

// Folders of an output that hold a model without states: "step-N" beside checkpoints/, as earlier
// versions saved them, and "checkpoint-N". By step.
struct WeightsDirectory {
  std::string name;
  int64_t step = 0;
};
std::vector<WeightsDirectory> list_weights_directories(const std::filesystem::path& output);

// What `latest` says; nothing where that is not the name of a checkpoint.
std::optional<int64_t> read_latest(FileSystem& file_system);

}  // namespace zeroth::checkpoint
