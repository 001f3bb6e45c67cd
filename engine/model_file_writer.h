// The model that stands in a checkpoint for transformers: each rank writes the values that it saves
// as states into the files of weights, too, and nothing is gathered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "checkpoint/commit.h"
#include "checkpoint/rank_manifest.h"
#include "engine/run_state.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

// Whether the model has it: masters of what is trained, weights of the rest.
bool belongs_to_model(const StateSlice& piece);

// The files in their sizes, with their first bytes, for all ranks to write into. By one rank,
// before any other has a ModelFileWriter.
std::vector<checkpoint::FileSegment> make_model_files(const checkpoint::Save& save,
                                                      const model::ModelLayout& layout);

// Takes a rank's masters, and the weights of what is frozen, in the precision of the model. Throws
// an Error that names the parameter where a value is not finite, or not in fp16: nobody could use
// such a model.
class ModelFileWriter : public StateSink {
 public:
  // Keeps references to both.
  ModelFileWriter(const checkpoint::Save& save, const model::ModelLayout& layout);

  void begin(const std::vector<StateSlice>& pieces) override;
  void write(size_t index, int64_t first, const torch::Tensor& values) override;
  // What this rank has written, once it is on the disk.
  std::vector<checkpoint::FileSegment> finish();

 private:
  struct ParameterRegion {
    std::string parameter;
    size_t file = 0;
    int64_t offset = 0;  // of the whole tensor's first byte
    TensorSlice box;
    int64_t first = 0;  // the piece's first element in it
  };

  checkpoint::WritableFile& file_for(size_t index, bool scattered);

  const checkpoint::Save& save_;
  const model::ModelLayout& layout_;
  std::filesystem::path target_;  // as users call it
  // By file. Null: nothing of it is written here.
  std::vector<std::unique_ptr<checkpoint::WritableFile>> files_;
  // The same for rows that lie apart, which nothing is gained by gathering.
  std::vector<std::unique_ptr<checkpoint::WritableFile>> row_files_;
  std::vector<std::optional<ParameterRegion>> regions_;  // by the number of the piece
  std::vector<checkpoint::FileSegment> parts_;
};

}  // namespace zeroth::engine
