// All ranks load the same checkpoint, or fall back to the previous one together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/rank_group.h"
#include "checkpoint/reader.h"

namespace zeroth::checkpoint {

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
