// Ranks load one checkpoint, all the same, or go back to the one before together.
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
  std::string name;  // on the disk
  int64_t step = 0;
  uint32_t crc = 0;                       // of its manifest
  std::vector<std::string> skipped = {};  // newer ones and why they were not taken, a line each
};

// Rank 0 chooses the newest complete checkpoint of the folder, all ranks open it, see that it has
// the same manifest, and call `load`. Where any rank throws CorruptCheckpoint all go on with the
// one before, so that `load` has to be able to begin again. What else a rank throws is an Error on
// all. Nothing where there are no checkpoints; an Error with the reasons where there are, and none
// can be loaded. Collective.
std::optional<LoadedCheckpoint> load_newest(std::shared_ptr<FileSystem> file_system,
                                            RankGroup& ranks,
                                            const std::function<void(CheckpointReader&)>& load);

// The same for one that is named; there is none to go back to. `name`: on the disk. Collective.
LoadedCheckpoint load_named(std::shared_ptr<FileSystem> file_system, const std::string& name,
                            RankGroup& ranks, const std::function<void(CheckpointReader&)>& load);

}  // namespace zeroth::checkpoint
