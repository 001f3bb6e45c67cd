// The weights of a model folder: model.safetensors, or the shards that model.safetensors.index.json
// names.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/hf/safetensors.h"

namespace zeroth::model {

class SafetensorsFolder {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };

  // Opens every file. Throws an Error when a shard is missing or lacks a tensor that the index says
  // it holds, when two shards hold one name, or when there are no weights.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  void open(const std::filesystem::path& path);
  void check_index(const std::map<std::string, std::string>& weight_map) const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry> entries_;
};

// Whether the folder holds safetensors weights. Throws an Error when it holds weights in other
// formats only.
bool has_weights(const std::filesystem::path& folder);

}  // namespace zeroth::model
