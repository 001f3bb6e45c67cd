#include "model/hf/safetensors_folder.h"

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/printable.h"

namespace zeroth::model {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && text.find_first_of("/\\") == text.npos &&
         text.find('\0') == text.npos;
}

// File by tensor.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json index = read_json({.name = path.string(), .repeated = Repeated::kRefused});
  try {
    std::map<std::string, std::string> files;
    const JsonView map = JsonView(index).at("weight_map");
    for (const auto& [tensor, file] : map.object().items()) {
      const JsonView view(file, "weight_map." + shortened(tensor));
      if (!is_file_name(view.text())) view.refuse("the name of a file in this folder");
      files.emplace(tensor, view.text());
    }
    return files;
  } catch (const Error& error) {
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
      throw Error("tensor {} is in {} and in {}", shortened(name), it->second.file->path().string(),
                  path.string());
    }
  }
}

void SafetensorsFolder::check_index(const std::map<std::string, std::string>& weight_map) const {
  for (const auto& [tensor, file] : weight_map) {
    const auto it = entries_.find(tensor);
    if (it == entries_.end() || it->second.file->path().filename() != file) {
      throw Error("{} says that {} holds tensor {}, but it does not", (folder_ / kIndex).string(),
                  file, shortened(tensor));
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
                  shortened(name), kSingle, kIndex);
    }
  }
  return false;
}

}  // namespace zeroth::model
