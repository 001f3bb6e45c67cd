// CheckpointSource reads initial values from a directory of safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/hf/safetensors.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

class CheckpointSource : public WeightSource {
 public:
  // Throws an Error when the files hold a tensor that is no parameter of the model: a layer too
  // many, a bias that config.json does not ask for.
  CheckpointSource(const std::filesystem::path& directory, const ModelSpec& spec);

  void check(const std::string& name, const std::vector<int64_t>& shape) override;
  void read(const ParamSlice& part, torch::Tensor out) override;

 private:
  struct StoredParameter {
    std::string stored_name;
    SafetensorsDirectory::FileTensor entry;
  };
  const StoredParameter& find(const std::string& name) const;

  ModelSpec spec_;
  SafetensorsDirectory files_;
  std::map<std::string, StoredParameter> found_;  // by canonical name
};

// Returns the directory's weights, or random ones seeded with `seed` when it holds none.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& directory,
                                           const ModelSpec& spec, uint64_t seed);

}  // namespace zeroth::model
