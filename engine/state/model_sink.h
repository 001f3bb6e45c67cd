// Receiver of a model's parameters when the model is saved.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace zeroth::engine {

struct ParameterInfo {
  std::string name;  // "layers.3.attention.q.weight"
  std::vector<int64_t> shape;
  torch::Dtype dtype;
};

class ModelSink {
 public:
  virtual ~ModelSink() = default;
  // Announces all parameters that will follow, in that order.
  virtual void begin(const std::vector<ParameterInfo>& parameters) = 0;
  // Receives a value of the announced shape and dtype, valid during the call only; it may be on a
  // GPU.
  virtual void write(const std::string& name, const torch::Tensor& value) = 0;
};

}  // namespace zeroth::engine
