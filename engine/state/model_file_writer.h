// Writer of the model in a checkpoint, for transformers: each rank writes the values that it saves
// as states into the weight files, too, without any gather.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "checkpoint/commit.h"
#include "checkpoint/rank_manifest.h"
#include "engine/state/run_state.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

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
    size_t file = 0;
    int64_t offset = 0;  // of the global tensor's first byte
    TensorSlice box;
    int64_t first = 0;  // the slice's first element in `box`
  };

  checkpoint::WritableFile& file_for(size_t index, bool scattered);

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

}  // namespace zeroth::engine
