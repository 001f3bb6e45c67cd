// Finds the checkpoints in a directory, determines which of them are complete, and loads one on all
// ranks.
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

class CheckpointReader;
class RankGroup;

struct CheckpointInfo {
  std::string name;  // of its directory in the file system
  int64_t step = 0;
  int64_t bytes = 0;         // of all files; of those that exist if it is incomplete
  int64_t written = 0;       // seconds since 1970
  SaveAttempt attempt = {};  // {0, 0} if it is incomplete
  uint32_t crc = 0;          // of its manifest
  std::string fault = {};    // why it is incomplete: file and error; empty if it is complete

  std::optional<int64_t> best_step = {};  // of the run's best model when this one was saved

  bool weights_only = false;  // a model without states, which no run can resume from
  // Set if it has a checkpoint's name but none of its contents: it belongs to another program.
  bool is_unrelated = false;

  bool complete() const { return fault.empty(); }
};

// Returns the checkpoints in a directory, sorted by step. Reads manifests and sizes, but not
// `latest`. Finds a checkpoint that a crash interrupted in its replacement under its other name.
// Omits a checkpoint that a run removes or replaces meanwhile, or returns its new state.
std::vector<CheckpointInfo> list_checkpoints(FileSystem& file_system);

// Returns the checkpoint that was saved last, whatever its step, of those that are complete and
// have states. Returns null if there is none.
const CheckpointInfo* newest(const std::vector<CheckpointInfo>& found);

// Returns whether this checkpoint is gone or replaced by another of the same name: a run that saves
// there keeps only its newest ones, and may save a step again.
bool was_removed(FileSystem& file_system, const CheckpointInfo& found);

// A CheckpointLocation is what a path given by the user refers to.
struct CheckpointLocation {
  std::shared_ptr<FileSystem> file_system;  // of the checkpoints' directory; null if none exists
  std::optional<std::string> checkpoint;    // its name, if the path is that of one checkpoint
};
// Resolves `path`: an output directory with checkpoints/ in it, that directory itself, or one
// checkpoint, also by the name that Hugging Face's Trainer gives it ("out/checkpoint-8").
CheckpointLocation locate(const std::filesystem::path& path);

// Calls `action` with the name of the checkpoint at `place`, or of the newest one there. If that
// one disappears meanwhile, calls `action` again with the newest one at that time. Throws an Error
// if there is none, or if `place` names one checkpoint and it disappears.
void with_selected_checkpoint(const CheckpointLocation& place,
                              const std::function<void(const std::string& name)>& action);

// A WeightsDirectory holds a model without states in an output directory: "step-N" beside
// checkpoints/, as earlier versions saved it, or "checkpoint-N". The list is sorted by step.
struct WeightsDirectory {
  std::string name;
  int64_t step = 0;
};
std::vector<WeightsDirectory> list_weights_directories(const std::filesystem::path& output);

// A LoadedCheckpoint is the one that all ranks have loaded.
struct LoadedCheckpoint {
  std::string name;  // in the file system
  int64_t step = 0;
  uint32_t crc = 0;                       // of its manifest
  std::vector<std::string> skipped = {};  // newer ones and why each was skipped, one line each
};

// Loads the newest complete checkpoint. Rank 0 chooses it; all ranks open it, verify that they see
// the same manifest, and call `load`. If any rank throws CorruptCheckpoint, all ranks retry with
// the previous checkpoint, so `load` must be able to restart. Any other exception on one rank is an
// Error on all. Returns nothing if there are no checkpoints. Throws an Error with the reasons if
// none of the existing ones can be loaded. Collective.
std::optional<LoadedCheckpoint> load_newest(std::shared_ptr<FileSystem> file_system,
                                            RankGroup& ranks,
                                            const std::function<void(CheckpointReader&)>& load);

// Loads the checkpoint `name`, a name in the file system, as load_newest() does but without a
// fallback. Collective.
LoadedCheckpoint load_named(std::shared_ptr<FileSystem> file_system, const std::string& name,
                            RankGroup& ranks, const std::function<void(CheckpointReader&)>& load);

}  // namespace zeroth::checkpoint
