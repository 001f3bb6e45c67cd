// Receiver of a model's parameters when the model is saved, and one that writes them to a file.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/hf/model_layout.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {

class ModelSink {
 public:
  virtual ~ModelSink() = default;
  // Announces all parameters that will follow, in that order, and their dtype.
  virtual void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) = 0;
  // Receives a value of the announced shape and dtype, valid during the call only; it may be on a
  // GPU.
  virtual void write(const std::string& name, const torch::Tensor& value) = 0;
};

// SafetensorsSink writes DIR/model.safetensors; commit() makes the complete directory visible.
// Throws an Error if the directory exists and is not empty, or a value is not finite.
class SafetensorsSink final : public ModelSink {
 public:
  explicit SafetensorsSink(std::filesystem::path dir) : dir_(std::move(dir)) {}

  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  void commit();

 private:
  std::filesystem::path dir_;
  std::optional<model::OutputDirectory> directory_;
  std::optional<model::SafetensorsWriter> writer_;
};

}  // namespace zeroth::engine
