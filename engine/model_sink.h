// Receives a model's parameters when it is saved.
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
  // All parameters that will come, in that order.
  virtual void begin(const std::vector<ParameterInfo>& parameters) = 0;
  // `value` has the announced shape and dtype and is valid during the call only; it may lie on a
  // GPU.
  virtual void write(const std::string& name, const torch::Tensor& value) = 0;
};

}  // namespace zeroth::engine
