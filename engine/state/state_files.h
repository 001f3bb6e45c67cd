// Files of a run's states in a checkpoint: the engine's slices under the parameter names of the
// files, and its counters.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/chunk_file.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "engine/loader.h"
#include "engine/state/run_state.h"

namespace zeroth::engine {

// StoredName maps a parameter's name to its name in files.
using StoredName = std::function<std::string(const std::string& parameter)>;

checkpoint::TensorChunk stored_piece(const StateSlice& piece, const StoredName& stored_name);

// StateFile writes this rank's slices into a file of its own.
class StateFile : public StateSink {
 public:
  // Keeps a reference to `save`. finish() returns once the bytes are on the disk, or throws an
  // Error.
  StateFile(const checkpoint::Save& save, StoredName stored_name);

  void begin(const std::vector<StateSlice>& pieces) override;
  void write(size_t index, int64_t first, const torch::Tensor& values) override;
  checkpoint::StoredFile finish();

 private:
  const checkpoint::Save& save_;
  StoredName stored_name_;
  std::optional<checkpoint::ChunkFile> file_;
};

// StateReader reads what this rank holds from the files of all ranks. Values saved in another
// precision are widened or rounded.
class StateReader : public StateSource {
 public:
  StateReader(checkpoint::CheckpointReader& reader, StoredName stored_name);
  void read(const StateSlice& piece, torch::Tensor values) override;

 private:
  checkpoint::CheckpointReader& reader_;
  StoredName stored_name_;
};

// Save a loader's position among the counters, and read it back. They throw an Error if the loader
// has no position, or none was saved.
void put_position(const Loader& data, checkpoint::Counters& counters);
Loader::Position position_of(const checkpoint::Counters& counters);

// Convert the engine's counters to those of a manifest, and back. from_counters() throws a
// checkpoint::CorruptCheckpoint that names a counter that is missing or of another type.
checkpoint::Counters to_counters(const RunCounters& counters);
RunCounters from_counters(const checkpoint::Counters& counters);

}  // namespace zeroth::engine
