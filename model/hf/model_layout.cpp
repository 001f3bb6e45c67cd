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
  auto bytes = static_cast<int64_t>(c10::elementSize(saved_dtype(tensor, dtype)));
  for (const int64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

std::string to_text(const Json& json) {
  return json.dump(2) + "\n";
}

// Adds a key that the object does not have. Json's operator[] would compare it with all others, of
// which a model with many experts has tens of thousands.
void add_key(Json& object, const std::string& key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
}

std::string index_text(const ModelLayout& layout) {
  Json index, weight_map = Json::object();
  int64_t total = 0;
  for (const ModelLayout::ShardFile& file : layout.files) {
    for (const PlannedTensor& tensor : file.tensors) {
      total += num_bytes(tensor, layout.dtype);
      add_key(weight_map, tensor.name, file.name);
    }
  }
  for (const ModelLayout::CopiedFile& file : layout.copied_files) {
    for (const CopiedTensor& tensor : file.tensors) {
      total += tensor.bytes;
      add_key(weight_map, tensor.name, file.name);
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

// Returns the layout of a file of these tensors.
SafetensorsLayout plan_file(const std::vector<CopiedTensor>& tensors) {
  SafetensorsLayout layout;
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const CopiedTensor& tensor : tensors) {
    const int64_t end = offset + tensor.bytes;
    const bool added = layout.offsets.try_emplace(tensor.name, offset).second;
    ZEROTH_CHECK(added, "{} is planned twice", tensor.name);
    add_key(header, tensor.name,
            {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}});
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

// Appends `tensor` to the last one of `files`, or to a new one if that would have more bytes than
// allowed. `filled` counts its bytes.
template <typename File, typename Tensor>
void append(std::vector<File>& files, const Tensor& tensor, int64_t bytes, int64_t max_bytes,
            int64_t& filled) {
  if (files.empty() || (filled > 0 && filled + bytes > max_bytes)) {
    files.emplace_back();
    filled = 0;
  }
  filled += bytes;
  files.back().tensors.push_back(tensor);
}

}  // namespace

torch::ScalarType saved_dtype(const PlannedTensor& tensor, torch::ScalarType dtype) {
  return tensor.keep_in_fp32 ? torch::kFloat : dtype;
}

SafetensorsLayout plan_safetensors(torch::ScalarType dtype,
                                   const std::vector<PlannedTensor>& tensors) {
  std::vector<CopiedTensor> planned;
  for (const PlannedTensor& tensor : tensors) {
    planned.push_back({tensor.name, std::string(dtype_name(saved_dtype(tensor, dtype))),
                       tensor.shape, num_bytes(tensor, dtype)});
  }
  return plan_file(planned);
}

int64_t ModelLayout::bytes() const {
  int64_t sum = std::ssize(index);
  for (const ShardFile& file : files) sum += file.layout.size;
  for (const CopiedFile& file : copied_files) sum += file.layout.size;
  return sum;
}

int64_t ModelLayout::num_tensors() const {
  int64_t sum = 0;
  for (const ShardFile& file : files) sum += std::ssize(file.tensors);
  return sum;
}

ModelLayout plan_model(const Family& family, torch::ScalarType dtype,
                       const std::vector<PlannedTensor>& parameters, int64_t max_shard_bytes,
                       const std::vector<CopiedTensor>& copied) {
  ModelLayout layout{.dtype = dtype, .files = {{}}, .locations = {}, .index = {}};
  int64_t filled = 0;
  for (const PlannedTensor& parameter : parameters) {
    for (const PlannedTensor& tensor : stored_tensors(family, parameter)) {
      append(layout.files, tensor, num_bytes(tensor, dtype), max_shard_bytes, filled);
      layout.locations[parameter.name].push_back({layout.files.size() - 1, 0, tensor});
    }
  }
  for (const CopiedTensor& tensor : copied)
    append(layout.copied_files, tensor, tensor.bytes, max_shard_bytes, filled);
  const size_t count = layout.files.size() + layout.copied_files.size();
  size_t index = 0;
  const auto next_name = [&] {
    return count == 1 ? "model.safetensors"
                      : fmt::format("model-{:05}-of-{:05}.safetensors", ++index, count);
  };
  for (ModelLayout::ShardFile& file : layout.files) {
    file.name = next_name();
    file.layout = plan_safetensors(dtype, file.tensors);
  }
  for (ModelLayout::CopiedFile& file : layout.copied_files) {
    file.name = next_name();
    file.layout = plan_file(file.tensors);
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
  const Family family = family_in_files(spec);
  if (!spec.multimodal) return plan_model(family, dtype, parameters, max_shard_bytes);
  ModelLayout layout =
      plan_model(family, dtype, parameters, max_shard_bytes, spec.multimodal->others);
  layout.copied_from = spec.multimodal->directory;
  return layout;
}

void write_model_metadata(const fs::path& source, const fs::path& output, torch::ScalarType dtype,
                          const fs::path& chat_template, bool unties_head) {
  const std::string path = (source / "config.json").string();
  auto config = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                   {.name = path, .limits = kConfigLimits});
  if (!config.is_object()) throw Error("{} is not a JSON object", path);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_dtype_name(dtype);
  // A multimodal model's text_config describes the language model, whose weights are the new ones.
  std::vector<Json*> objects = {&config};
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object())
    objects.push_back(&*text);
  for (Json* object : objects) {
    for (const char* key : {"dtype", "torch_dtype"})
      if (object->contains(key)) (*object)[key] = torch_dtype_name(dtype);
    if (unties_head) (*object)["tie_word_embeddings"] = false;
  }
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
