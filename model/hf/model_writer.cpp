#include "model/hf/model_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/companions.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

void write_json(const fs::path& path, const nlohmann::ordered_json& value) {
  std::ofstream file(path, std::ios::binary);
  file << value.dump(2) << '\n';
  file.close();
  if (!file) {
    throw Error("{} cannot be written: {}", path.string(), write_reason(errno, path.parent_path()));
  }
}

const char* config_dtype(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 ? "float32" : dtype == torch::kFloat16 ? "float16" : "bfloat16";
}

void write_config(const fs::path& source, const fs::path& output, torch::ScalarType dtype) {
  const std::string path = (source / "config.json").string();
  auto config = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                   {.name = path, .limits = kConfigLimits});
  if (!config.is_object()) throw Error("{} is not a JSON object", path);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = config_dtype(dtype);
  if (config.contains("torch_dtype")) config["torch_dtype"] = config_dtype(dtype);
  write_json(output / "config.json", config);
}

int64_t bytes_of(const PlannedTensor& parameter, torch::ScalarType dtype) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t extent : parameter.shape) bytes *= extent;
  return bytes;
}

}  // namespace

ModelWriter::ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters)
    : target_(options.output), spec_(options.spec), folder_(options.output, options.overwrite) {
  write_config(options.source, folder_.path(), options.dtype);
  copy_companions(options.source, folder_.path());
  plan_shards(options, parameters);
  if (shards_.size() > 1) write_index(options, parameters);
}

void ModelWriter::plan_shards(const WriterOptions& options,
                              const std::vector<PlannedTensor>& parameters) {
  std::vector<std::vector<PlannedTensor>> plans(1);
  int64_t filled = 0;
  for (const PlannedTensor& parameter : parameters) {
    const int64_t bytes = bytes_of(parameter, options.dtype);
    if (filled > 0 && filled + bytes > options.max_shard_bytes) {
      plans.emplace_back();
      filled = 0;
    }
    filled += bytes;
    plans.back().push_back({stored_name(spec_, parameter.name), parameter.shape});
    shard_of_[parameter.name] = plans.size() - 1;
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    shard_names_.push_back(
        plans.size() == 1 ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plans.size()));
    shards_.push_back(std::make_unique<SafetensorsWriter>(folder_.path() / shard_names_.back(),
                                                          options.dtype, plans[i]));
  }
}

void ModelWriter::write_index(const WriterOptions& options,
                              const std::vector<PlannedTensor>& parameters) {
  nlohmann::ordered_json index;
  int64_t total = 0;
  for (const PlannedTensor& parameter : parameters) total += bytes_of(parameter, options.dtype);
  index["metadata"]["total_size"] = total;
  for (const PlannedTensor& parameter : parameters) {
    index["weight_map"][stored_name(spec_, parameter.name)] =
        shard_names_[shard_of_.at(parameter.name)];
  }
  write_json(folder_.path() / "model.safetensors.index.json", index);
}

void ModelWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto it = shard_of_.find(name);
  ZEROTH_CHECK(it != shard_of_.end(), "{} is not planned", name);
  require_finite(target_, name, tensor);
  shards_[it->second]->write(stored_name(spec_, name), tensor);
}

std::unique_ptr<FormerModel> ModelWriter::commit() {
  for (const auto& shard : shards_) shard->finish();
  return folder_.commit();
}

}  // namespace zeroth::model
