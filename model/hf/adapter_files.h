// The files of an adapter, as peft reads and writes them: adapter_config.json and
// adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/lora_config.h"
#include "model/hf/lora_plan.h"
#include "model/hf/model_layout.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
// What peft's format does not record: the form of the base's weights over which it was trained.
inline constexpr const char* kAdapterQuantizationFile = "adapter_quantization.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

// Returns whether a directory holds an adapter.
bool has_adapter(const std::filesystem::path& directory);

struct AdapterConfig {
  configs::LoraConfig lora;  // enabled
  std::string base_model;    // base_model_name_or_path; may be empty
};

// Reads DIRECTORY/adapter_config.json. Throws an Error that names the file, and each key with a
// value that is malformed or not supported (DoRA, another kind of adapter, ...), with what to do.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

// Returns the text of adapter_config.json: every key that peft 0.21.2 writes, in its order.
// target_modules are those of resolved_targets(), sorted; patterns keep their order, which counts.
std::string adapter_config_text(const ModelSpec& spec, const AdapterConfig& adapter);

// Returns the text of adapter_quantization.json: a quantization_config as in config.json, and the
// precision to which weights were dequantized ("bfloat16").
std::string adapter_quantization_text(const QuantizationSpec& quantization,
                                      const std::string& dtype);

// Returns what DIRECTORY/adapter_quantization.json says, nullopt without that file. Its is_stored
// is false: it is made of any weights. Throws an Error that names the file if it is malformed.
std::optional<QuantizationSpec> read_adapter_quantization(const std::filesystem::path& directory);

// Returns the name in adapter_model.safetensors of an adapter's factor
// ("layers.0.attention.q.lora_A"), or of another trained parameter.
std::string adapter_tensor_name(const ModelSpec& spec, const LoraPlan& plan,
                                const std::string& canonical);

// Returns the layout of adapter_model.safetensors: `parameters`, which have canonical names, sorted
// by their names in the file, in fp32. Pure.
ModelLayout plan_adapter(const ModelSpec& spec, const LoraPlan& plan,
                         const std::vector<PlannedTensor>& parameters);

// Throws an Error if the adapter's file repeats a table of the base, as peft saves it beside an
// adapter of an embedding or the head, with other values than `base` has, rounded as in the file or
// to 16 bits.
void check_base_tables(const std::filesystem::path& directory, const ModelSpec& spec,
                       const LoraPlan& plan, WeightSource& base);

// Returns a source of an adapter's values in `directory`, in fp32, bf16 or fp16. Throws an Error
// that names the tensors when the file holds one that the plan does not have, or misses any.
// check() and read() throw an Error for parameters of the base.
std::unique_ptr<WeightSource> open_adapter(const std::filesystem::path& directory,
                                           const ModelSpec& spec, const LoraPlan& plan);

}  // namespace zeroth::model
