// Writes a trained model as a Hugging Face folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model_sink.h"
#include "model/hf/model_writer.h"

namespace zeroth::trainer {

// The folder appears, whole, in finish(). On ranks whose sink is never called nothing happens. An
// Error waits for finish(): the gathers that feed the sink are collective and must go on.
class HfOutput : public engine::ModelSink {
 public:
  // `dtype` on the disk; unset: that of the parameters.
  HfOutput(model::WriterOptions options, std::optional<torch::Dtype> dtype)
      : options_(std::move(options)), dtype_(dtype) {}

  void begin(const std::vector<engine::ParameterInfo>& parameters) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  // What went wrong, if anything.
  std::optional<std::string> finish();
  // After that: the model that was replaced, if any. It goes with the result.
  std::unique_ptr<model::FormerModel> take_former() { return std::move(former_); }

 private:
  template <typename Action>
  void unless_failed(Action action);

  model::WriterOptions options_;
  std::optional<torch::Dtype> dtype_;
  std::optional<model::ModelWriter> writer_;
  std::optional<std::string> failure_;
  std::unique_ptr<model::FormerModel> former_;
};

}  // namespace zeroth::trainer
