// Writes a model folder that transformers loads.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/hf/model_layout.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"
#include "model/spec.h"

namespace zeroth::model {

struct WriterOptions {
  std::filesystem::path source;  // the folder whose config.json, tokenizer and templates are copied
  std::filesystem::path output;
  ModelSpec spec;
  torch::ScalarType dtype = torch::kFloat32;  // precision on the disk
  int64_t max_shard_bytes = kMaxShardBytes;
  bool overwrite = false;
};

// Holds one tensor at a time. Nothing appears at the output before commit(); see OutputDirectory.
// For one rank only.
class ModelWriter {
 public:
  // `parameters`: by their canonical names, a tied weight once.
  ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters);

  // Any order, each once; any floating dtype and device. Throws an Error that names the parameter
  // when it holds a value that is not finite: such a model is no use, and would replace one that
  // is.
  void write(const std::string& name, const torch::Tensor& tensor);

  // Every parameter must have been written. Blocks until all is on the disk, and returns the model
  // that was replaced, if any. `guard`: see OutputDirectory.
  std::unique_ptr<PreviousModel> commit(const OutputGuard& guard = {});

 private:
  std::filesystem::path target_;
  ModelSpec spec_;
  OutputDirectory directory_;
  ModelLayout layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
};

}  // namespace zeroth::model
