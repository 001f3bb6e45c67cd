// CheckpointSource reads initial values from a directory of safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf/families/family.h"
#include "model/hf/safetensors.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// A StoredParameter is a tensor in a file: a parameter, or a piece of one (checkpoint_map.h).
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
  // Reads a model of a family that find_family() need not know, with these parameters.
  CheckpointSource(const std::filesystem::path& directory, const ModelSpec& spec,
                   const Family& family, const std::set<std::string>& parameters);

  void check(const std::string& name, const std::vector<int64_t>& shape) override;
  void read(const ParamSlice& part, torch::Tensor out) override;

 protected:
  // Returns the tensor of a parameter, or of a part of a quantized weight ("X.weight.absmax").
  // Throws a UsageError that names the tensor if the files do not hold it.
  const StoredParameter& find(const std::string& name) const;

 private:
  // By the index among stored_tensors(), or kFull if the files hold the parameter as one tensor.
  using Pieces = std::map<int64_t, StoredParameter>;
  static constexpr int64_t kFull = -1;

  void add(const std::string& stored, const SafetensorsDirectory::FileTensor& entry,
           const std::set<std::string>& parameters);
  [[noreturn]] void refuse(const StoredParameter& stored) const;
  [[noreturn]] void throw_missing(const std::string& stored) const;
  // Returns none for a parameter that the files do not hold.
  const Pieces& pieces(const std::string& name) const;

  ModelSpec spec_;
  Family family_;
  SafetensorsDirectory files_;
  std::map<std::string, Pieces> found_;  // by canonical name
};

// Returns lines about the tensors of the directory's files that are no parameters of the model but
// may have a use: those that transformers skips, and those beside a multimodal model's language
// model. There is no line about buffers.
std::vector<std::string> untrained_tensors(const std::filesystem::path& directory,
                                           const ModelSpec& spec, const Family& family);
std::vector<std::string> untrained_tensors(const std::filesystem::path& directory,
                                           const ModelSpec& spec);

// Returns the directory's weights, or random ones seeded with `seed` when it holds none. Weights
// that the spec quantizes are rounded to `dtype` before; see nf4_source.h.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& directory,
                                           const ModelSpec& spec, uint64_t seed,
                                           torch::Dtype dtype = torch::kFloat);

}  // namespace zeroth::model
