// Writes a trained model as a Hugging Face folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/model_sink.h"
#include "model/model_writer.h"
#include "model/spec.h"
#include "trainer/flags.h"

namespace zeroth::trainer {

// The folder appears, whole, in finish(). On ranks whose sink is never called nothing happens.
class HfOutput : public engine::ModelSink {
 public:
  HfOutput(const Flags& flags, const model::ModelSpec& spec) : flags_(flags), spec_(spec) {}

  void begin(const std::vector<engine::ParameterInfo>& parameters) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  void finish();

 private:
  const Flags& flags_;
  const model::ModelSpec& spec_;
  std::optional<model::ModelWriter> writer_;
};

}  // namespace zeroth::trainer
