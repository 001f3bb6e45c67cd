// A saved model as one file of a directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/model_sink.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {

// DIR/model.safetensors; the directory appears, whole, in commit(). An existing directory that is
// not empty is an Error, and so is a value that is not finite.
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
