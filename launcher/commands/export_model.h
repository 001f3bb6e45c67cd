// Exports the weights of a checkpoint to a model directory that transformers loads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/commands/dtype_conversion.h"

namespace zeroth::launcher {

struct ExportRequest {
  std::filesystem::path from = {};  // an output directory, its checkpoints, or one checkpoint
  std::filesystem::path to = {};
  Dtype dtype = Dtype::kF32;
  bool overwrite = false;
  // Maximum bytes of a file of weights. A single tensor may be larger.
  int64_t max_shard_bytes = 5'000'000'000;
};

struct ExportResult {
  std::filesystem::path from = {}, to = {};  // resolved paths
  int64_t tensors = 0;
  int64_t bytes = 0;                     // of the weights
  std::vector<std::string> copied = {};  // files beside the weights
};

// Exports the master weights of trained tensors and the weights of the others, rounded. Uses little
// memory, regardless of tensor sizes. Throws an Error, and leaves nothing behind, if the checkpoint
// is damaged, `to` cannot be created, or a value is not finite or exceeds the range of `dtype`; the
// last names the tensor.
ExportResult export_model(const ExportRequest& request);

}  // namespace zeroth::launcher
