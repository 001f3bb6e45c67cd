// The weights of a checkpoint as a model's folder that transformers loads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/dtype_conversion.h"

namespace zeroth::launcher {

struct ExportRequest {
  std::filesystem::path from = {};  // an output, its checkpoints, or one checkpoint
  std::filesystem::path to = {};
  Dtype dtype = Dtype::kF32;
  bool overwrite = false;
  // Files of weights end before they grow beyond this. One tensor may be larger.
  int64_t max_shard_bytes = 5'000'000'000;
};

struct ExportResult {
  std::filesystem::path from = {}, to = {};  // as they were found
  int64_t tensors = 0;
  int64_t bytes = 0;                     // of the weights
  std::vector<std::string> copied = {};  // files beside them
};

// Of what was trained the masters, else the weights, rounded. In little memory, whatever the size
// of a tensor. Throws an Error, and leaves nothing behind, where the checkpoint is damaged, `to`
// cannot be, or a value is not finite or beyond what `dtype` holds: that names the tensor.
ExportResult export_model(const ExportRequest& request);

}  // namespace zeroth::launcher
