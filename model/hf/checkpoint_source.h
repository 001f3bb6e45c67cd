// CheckpointSource reads initial values from a directory of safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf/safetensors.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// A StoredParameter is a parameter's tensor in a file.
struct StoredParameter {
  std::string stored_name;
  SafetensorsDirectory::FileTensor entry;

  // Throws a UsageError that names file and tensor if the dtype is not supported, or the shape is
  // another one. `requirement` says who needs `shape` ("config.json requires"), and `advice` what
  // to do.
  void check(const std::vector<int64_t>& shape, std::string_view requirement,
             std::string_view advice = {}) const;
  // Reads as WeightSource::read() does.
  void read(const ParamSlice& part, torch::Tensor out) const;
};

class CheckpointSource : public WeightSource {
 public:
  // Throws an Error when the files hold a tensor that is no parameter of the model: a layer too
  // many, a bias that config.json does not ask for.
  CheckpointSource(const std::filesystem::path& directory, const ModelSpec& spec);

  void check(const std::string& name, const std::vector<int64_t>& shape) override;
  void read(const ParamSlice& part, torch::Tensor out) override;

 protected:
  // Returns the tensor of a parameter, or of a part of a quantized weight ("X.weight.absmax").
  // Throws a UsageError that names the tensor if the files do not hold it.
  const StoredParameter& find(const std::string& name) const;

 private:
  ModelSpec spec_;
  SafetensorsDirectory files_;
  std::map<std::string, StoredParameter> found_;  // by canonical name
};

// Returns the directory's weights, or random ones seeded with `seed` when it holds none. Weights
// that the spec quantizes are rounded to `dtype` before; see nf4_source.h.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& directory,
                                           const ModelSpec& spec, uint64_t seed,
                                           torch::Dtype dtype = torch::kFloat);

}  // namespace zeroth::model
