// Files of a checkpoint: a run's states, under the parameter names of the files, its counters, and
// the model for transformers. Each rank writes the values that it saves as states into the model's
// weight files, too, without any gather.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor_slice.h"
#include "checkpoint/chunk_file.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_manifest.h"
#include "checkpoint/reader.h"
#include "engine/loader.h"
#include "engine/state/run_state.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

// StoredName maps a parameter's name to its name in files.
using StoredName = std::function<std::string(const std::string& parameter)>;

checkpoint::TensorChunk stored_piece(const StateSlice& piece, const StoredName& stored_name);

// StateFile writes this rank's slices into a file of its own.
class StateFile : public StateSink {
 public:
  // Keeps a reference to `save`. finish() returns once the bytes are on the disk, or throws an
  // Error.
  StateFile(const checkpoint::Save& save, StoredName stored_name)
      : save_(save), stored_name_(std::move(stored_name)) {}

  void begin(const std::vector<StateSlice>& pieces) override;
  void write(size_t index, int64_t first, const torch::Tensor& values) override;
  checkpoint::StoredFile finish();

 private:
  const checkpoint::Save& save_;
  StoredName stored_name_;
  std::optional<checkpoint::ChunkFile> file_;
};

// Returns whether the slice belongs to the model: masters of trainable parameters, weights of
// frozen ones.
bool belongs_to_model(const StateSlice& piece);

// Creates the files in their final sizes, with their headers, for all ranks to write into. One rank
// calls it, before any other constructs a ModelFileWriter.
std::vector<checkpoint::FileSegment> make_model_files(const checkpoint::Save& save,
                                                      const model::ModelLayout& layout);

// ModelFileWriter receives a rank's masters, and its frozen weights, and writes them in the model's
// precision. Throws an Error that names the parameter if a value is not finite, or exceeds fp16's
// range, as the model would be unusable.
class ModelFileWriter : public StateSink {
 public:
  // Keeps references to both.
  ModelFileWriter(const checkpoint::Save& save, const model::ModelLayout& layout);

  void begin(const std::vector<StateSlice>& pieces) override;
  void write(size_t index, int64_t first, const torch::Tensor& values) override;
  // Returns the segments that this rank has written, once they are on the disk.
  std::vector<checkpoint::FileSegment> finish();

 private:
  struct ParameterRegion {
    std::string parameter;
    const std::vector<model::ModelLayout::TensorLocation>* locations = nullptr;  // of its tensors
    TensorSlice box;
    int64_t first = 0;  // the slice's first element in `box`
  };

  torch::Dtype saved_dtype(const ParameterRegion& region) const;
  checkpoint::WritableFile& file_for(size_t index, bool scattered);
  // Writes consecutive values of a parameter, from this element of the global tensor on.
  void write_run(const ParameterRegion& region, int64_t element, std::span<const std::byte> bytes,
                 bool scattered);

  const checkpoint::Save& save_;
  const model::ModelLayout& layout_;
  std::filesystem::path target_;  // final path, for messages
  // By file. Null: this rank writes nothing of it.
  std::vector<std::unique_ptr<checkpoint::WritableFile>> files_;
  // By file, for rows that are not contiguous; write-behind would not speed them up.
  std::vector<std::unique_ptr<checkpoint::WritableFile>> row_files_;
  std::vector<std::optional<ParameterRegion>> regions_;  // by index of the slice
  std::vector<checkpoint::FileSegment> parts_;
};

// StateReader reads what this rank holds from the files of all ranks. Values saved in another
// precision are widened or rounded.
class StateReader : public StateSource {
 public:
  StateReader(checkpoint::CheckpointReader& reader, StoredName stored_name)
      : reader_(reader), stored_name_(std::move(stored_name)) {}
  void read(const StateSlice& piece, torch::Tensor values) override;
  bool stores(const StateSlice& piece) override;

 private:
  checkpoint::CheckpointReader& reader_;
  StoredName stored_name_;
};

// Save a loader's position among the counters, and read it back. They throw an Error if the loader
// has no position, or none was saved.
void put_position(const DataLoader& data, checkpoint::Counters& counters);
DataLoader::Position position_of(const checkpoint::Counters& counters);

// Convert the engine's counters to those of a manifest, and back. from_counters() throws a
// checkpoint::CorruptCheckpoint that names a counter that is missing or of another type.
checkpoint::Counters to_counters(const RunCounters& counters);
RunCounters from_counters(const checkpoint::Counters& counters);

}  // namespace zeroth::engine
