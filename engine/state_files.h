// A run's states in a checkpoint: the engine's pieces under the names that files have for
// parameters, and its counters.
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
#include "engine/run_state.h"

namespace zeroth::engine {

// From a parameter's name to the one in files.
using StoredName = std::function<std::string(const std::string& parameter)>;

checkpoint::TensorChunk stored_piece(const StateSlice& piece, const StoredName& stored_name);

// Writes this rank's pieces into a file of its own.
class StateFile : public StateSink {
 public:
  // The file's bytes on the disk, or an Error, are there once finish() returns.
  StateFile(const checkpoint::Save& save, StoredName stored_name);

  void begin(const std::vector<StateSlice>& pieces) override;
  void write(size_t index, int64_t first, const torch::Tensor& values) override;
  checkpoint::StoredFile finish();

 private:
  const checkpoint::Save& save_;
  StoredName stored_name_;
  std::optional<checkpoint::ChunkFile> file_;
};

// Reads what this rank holds out of all files. What was saved in another precision is widened or
// rounded.
class StateReader : public StateSource {
 public:
  StateReader(checkpoint::CheckpointReader& reader, StoredName stored_name);
  void read(const StateSlice& piece, torch::Tensor values) override;

 private:
  checkpoint::CheckpointReader& reader_;
  StoredName stored_name_;
};

// A loader's position among them. An Error says where it has none, or none was saved.
void put_position(const Loader& data, checkpoint::Counters& counters);
Loader::Position position_of(const checkpoint::Counters& counters);

// The engine's counters as a manifest holds them, and back. The latter throws
// checkpoint::CorruptCheckpoint that names a counter which is not there, or of another kind.
checkpoint::Counters to_counters(const RunCounters& counters);
RunCounters from_counters(const checkpoint::Counters& counters);

}  // namespace zeroth::engine
