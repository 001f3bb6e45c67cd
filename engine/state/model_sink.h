// Receiver of a model's parameters when the model is saved.
#pragma once

#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/hf/model_layout.h"

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

}  // namespace zeroth::engine
