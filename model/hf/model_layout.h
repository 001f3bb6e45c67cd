// The files of a saved model and the position of each value in them, computed before any of it is
// written, so that several ranks can write their own bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/tensor.h"
#include "model/hf/checkpoint_map.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// SafetensorsLayout describes one safetensors file whose tensors follow each other in their order.
struct SafetensorsLayout {
  std::string header;                      // the first bytes, with the header's length
  std::map<std::string, int64_t> offsets;  // of each tensor's first byte
  int64_t size = 0;                        // of the full file
};
// Returns the dtype of a tensor in files of `dtype`: float32, float16 or bfloat16.
torch::ScalarType saved_dtype(const PlannedTensor& tensor, torch::ScalarType dtype);

// Returns the layout of a file of `dtype`. Pure.
SafetensorsLayout plan_safetensors(torch::ScalarType dtype,
                                   const std::vector<PlannedTensor>& tensors);

// A shard file ends before it grows beyond this size. A single tensor may be larger.
inline constexpr int64_t kMaxShardBytes = 5'000'000'000;

struct ModelLayout {
  struct ShardFile {
    std::string name;                    // "model.safetensors"
    std::vector<PlannedTensor> tensors;  // by their names in files
    SafetensorsLayout layout;
  };
  // A file of tensors that are copied from those of MultimodalModel::directory.
  struct CopiedFile {
    std::string name;
    std::vector<CopiedTensor> tensors;
    SafetensorsLayout layout;
  };
  struct TensorLocation {
    size_t file = 0;
    int64_t offset = 0;         // of the first byte
    PlannedTensor tensor = {};  // in the file
  };
  torch::ScalarType dtype = torch::kFloat;
  std::vector<ShardFile> files;
  std::vector<CopiedFile> copied_files = {};
  std::filesystem::path copied_from = {};  // MultimodalModel::directory
  // By canonical name: of the tensors of equal sizes that hold the parameter's elements in
  // row-major order.
  std::map<std::string, std::vector<TensorLocation>> locations;
  std::string index;  // text of kIndexFile; empty if there is one file

  int64_t bytes() const;        // of all files
  int64_t num_tensors() const;  // that are written, in all files
};
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// Returns the layout of a model. `parameters` have their canonical names, a tied weight once. The
// model of a spec has the other tensors of a multimodal one, too. Pure.
ModelLayout plan_model(const Family& family, torch::ScalarType dtype,
                       const std::vector<PlannedTensor>& parameters,
                       int64_t max_shard_bytes = kMaxShardBytes,
                       const std::vector<CopiedTensor>& copied = {});
ModelLayout plan_model(const ModelSpec& spec, torch::ScalarType dtype,
                       const std::vector<PlannedTensor>& parameters,
                       int64_t max_shard_bytes = kMaxShardBytes);

// Writes the files beside the weights: config.json of the directory `source` with this dtype, and
// its auxiliary files, with the file `chat_template`, if it is not empty, in place of its template.
// With `unties_head` config.json says that the head has a weight of its own. The new config.json
// has no quantization_config: its weights are in `dtype`. Throws an Error that names the file.
void write_model_metadata(const std::filesystem::path& source, const std::filesystem::path& output,
                          torch::ScalarType dtype, const std::filesystem::path& chat_template = {},
                          bool unties_head = false);
// The texts of the files beside an adapter's weights.
struct AdapterTexts {
  std::string config;             // adapter_config.json
  std::string quantization = "";  // adapter_quantization.json; empty: the base is not quantized
};
// Writes these files, and the base's auxiliary files like write_model_metadata().
void write_adapter_metadata(const std::filesystem::path& base, const std::filesystem::path& output,
                            const AdapterTexts& texts,
                            const std::filesystem::path& chat_template = {});

}  // namespace zeroth::model
