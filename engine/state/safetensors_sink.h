// Sink that saves a model as one file of a directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/state/model_sink.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {

// SafetensorsSink writes DIR/model.safetensors; commit() makes the complete directory visible.
// Throws an Error if the directory exists and is not empty, or a value is not finite.
class SafetensorsSink final : public ModelSink {
 public:
  explicit SafetensorsSink(std::filesystem::path dir) : dir_(std::move(dir)) {}

  void begin(const std::vector<ParameterInfo>& parameters) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  void commit();

 private:
  std::filesystem::path dir_;
  std::optional<model::OutputDirectory> directory_;
  std::optional<model::SafetensorsWriter> writer_;
};

}  // namespace zeroth::engine
