// Exports the weights of a checkpoint to a model directory that transformers loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

enum class Dtype { kF32, kBf16, kF16 };

struct DtypeInfo {
  Dtype dtype;
  size_t element_bytes;
  std::string_view flag;         // value of --dtype
  std::string_view safetensors;  // name in the header of a safetensors file
  std::string_view config;       // name in a model's config.json
};
inline constexpr DtypeInfo kDtypes[] = {{Dtype::kF32, 4, "fp32", "F32", "float32"},
                                        {Dtype::kBf16, 2, "bf16", "BF16", "bfloat16"},
                                        {Dtype::kF16, 2, "fp16", "F16", "float16"}};
constexpr const DtypeInfo& dtype_info(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

// Parses "F32", "BF16", "F16" of safetensors; empty for others.
std::optional<Dtype> parse_dtype(std::string_view safetensors_name);

// Converts as many elements as both spans hold, rounded to nearest, ties to even. Returns the first
// value that is not finite before or after conversion; empty if there is none.
std::optional<float> convert(std::span<const std::byte> from, Dtype from_dtype,
                             std::span<std::byte> to, Dtype to_dtype);

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
