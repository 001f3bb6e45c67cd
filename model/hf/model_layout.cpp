#include "model/hf/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "model/hf/adapter_files.h"
#include "model/hf/auxiliary_files.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

int64_t num_bytes(const PlannedTensor& tensor, torch::ScalarType dtype) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

std::string to_text(const Json& json) {
  return json.dump(2) + "\n";
}

std::string index_text(const ModelLayout& layout) {
  Json index, weight_map;
  int64_t total = 0;
  for (const ModelLayout::ShardFile& file : layout.files) {
    for (const PlannedTensor& tensor : file.tensors) {
      total += num_bytes(tensor, layout.dtype);
      weight_map[tensor.name] = file.name;
    }
  }
  index["metadata"]["total_size"] = total;
  index["weight_map"] = std::move(weight_map);
  return to_text(index);
}

void copy_tokenizer(const fs::path& source, const fs::path& output, const fs::path& chat_template) {
  copy_auxiliary_files(source, output);
  if (chat_template.empty()) return;
  write_file(output / "chat_template.jinja",
             read_file(chat_template.string(), kConfigLimits.bytes));
}

}  // namespace

SafetensorsLayout plan_safetensors(torch::ScalarType dtype,
                                   const std::vector<PlannedTensor>& tensors) {
  SafetensorsLayout layout;
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    const int64_t end = offset + num_bytes(tensor, dtype);
    header[tensor.name] = {
        {"dtype", dtype_name(dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    const bool added = layout.offsets.try_emplace(tensor.name, offset).second;
    ZEROTH_CHECK(added, "{} is planned twice", tensor.name);
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  layout.header.assign(sizeof(length), '\0');
  std::memcpy(layout.header.data(), &length, sizeof(length));
  layout.header += text;
  for (auto& [name, begin] : layout.offsets) begin += std::ssize(layout.header);
  layout.size = std::ssize(layout.header) + offset;
  return layout;
}

int64_t ModelLayout::bytes() const {
  int64_t sum = std::ssize(index);
  for (const ShardFile& file : files) sum += file.layout.size;
  return sum;
}

int64_t ModelLayout::num_tensors() const {
  int64_t sum = 0;
  for (const ShardFile& file : files) sum += std::ssize(file.tensors);
  return sum;
}

ModelLayout plan_model(const Family& family, torch::ScalarType dtype,
                       const std::vector<PlannedTensor>& parameters, int64_t max_shard_bytes) {
  ModelLayout layout{.dtype = dtype, .files = {{}}, .locations = {}, .index = {}};
  int64_t filled = 0;
  for (const PlannedTensor& parameter : parameters) {
    for (const PlannedTensor& tensor : stored_tensors(family, parameter)) {
      const int64_t bytes = num_bytes(tensor, dtype);
      if (filled > 0 && filled + bytes > max_shard_bytes) {
        layout.files.emplace_back();
        filled = 0;
      }
      filled += bytes;
      layout.files.back().tensors.push_back(tensor);
      layout.locations[parameter.name].push_back({layout.files.size() - 1, 0, tensor});
    }
  }
  const size_t count = layout.files.size();
  for (size_t i = 0; i < count; ++i) {
    ModelLayout::ShardFile& file = layout.files[i];
    file.name = count == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
    file.layout = plan_safetensors(dtype, file.tensors);
  }
  for (auto& [name, locations] : layout.locations) {
    for (ModelLayout::TensorLocation& location : locations)
      location.offset = layout.files[location.file].layout.offsets.at(location.tensor.name);
  }
  if (count > 1) layout.index = index_text(layout);
  return layout;
}

ModelLayout plan_model(const ModelSpec& spec, torch::ScalarType dtype,
                       const std::vector<PlannedTensor>& parameters, int64_t max_shard_bytes) {
  return plan_model(family_of(spec), dtype, parameters, max_shard_bytes);
}

void write_model_metadata(const fs::path& source, const fs::path& output, torch::ScalarType dtype,
                          const fs::path& chat_template, bool unties_head) {
  const std::string path = (source / "config.json").string();
  auto config = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                   {.name = path, .limits = kConfigLimits});
  if (!config.is_object()) throw Error("{} is not a JSON object", path);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_dtype_name(dtype);
  if (config.contains("torch_dtype")) config["torch_dtype"] = torch_dtype_name(dtype);
  if (unties_head) config["tie_word_embeddings"] = false;
  config.erase("quantization_config");
  write_file(output / "config.json", to_text(config));
  copy_tokenizer(source, output, chat_template);
}

void write_adapter_metadata(const fs::path& base, const fs::path& output, const AdapterTexts& texts,
                            const fs::path& chat_template) {
  write_file(output / kAdapterConfigFile, texts.config);
  if (!texts.quantization.empty())
    write_file(output / kAdapterQuantizationFile, texts.quantization);
  copy_tokenizer(base, output, chat_template);
}

}  // namespace zeroth::model
