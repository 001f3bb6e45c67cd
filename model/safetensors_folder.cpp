#include "model/safetensors_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("{} cannot be read", path.string());
  const json index = json::parse(file, nullptr, /*allow_exceptions=*/false);
  try {
    return index.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const json::exception& error) {
    throw Error("{} has no readable weight_map: {}", path.string(), error.what());
  }
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) : folder_(folder) {
  if (std::filesystem::exists(folder / kSingle)) {
    open(folder / kSingle);
    return;
  }
  if (!std::filesystem::exists(folder / kIndex)) {
    throw Error("{} holds neither {} nor {}", folder.string(), kSingle, kIndex);
  }
  const auto weight_map = read_index(folder / kIndex);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) open(folder / name);
  check_index(weight_map);
}

void SafetensorsFolder::open(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const auto& [name, tensor] : file.tensors()) {
    const auto [it, added] = entries_.try_emplace(name, Entry{&file, &tensor});
    if (!added) {
      throw Error("tensor {} is in {} and in {}", name, it->second.file->path().string(),
                  path.string());
    }
  }
}

void SafetensorsFolder::check_index(const std::map<std::string, std::string>& weight_map) const {
  for (const auto& [tensor, file] : weight_map) {
    const auto it = entries_.find(tensor);
    if (it == entries_.end() || it->second.file->path().filename() != file) {
      throw Error("{} says that {} holds tensor {}, but it does not", (folder_ / kIndex).string(),
                  file, tensor);
    }
  }
}

bool has_weights(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / kSingle) || std::filesystem::exists(folder / kIndex)) {
    return true;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    if (kind == ".safetensors" || kind == ".pt" || kind == ".pth" || kind == ".gguf" ||
        kind == ".h5" || kind == ".msgpack" || name.starts_with("pytorch_model")) {
      throw Error("{} holds {} but no {} or {}: weights are read from these only", folder.string(),
                  name, kSingle, kIndex);
    }
  }
  return false;
}

}  // namespace zeroth::model
