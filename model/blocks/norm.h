// Normalisation over the last dimension.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>

#include "model/spec.h"

namespace zeroth::model {

class Norm : public torch::nn::Module {
 public:
  Norm(NormKind kind, int64_t size, double eps);

  // x [..., size], any floating dtype; computed in fp32, returned in x's dtype.
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  NormKind kind_;
  double eps_;
  torch::Tensor weight_;  // [size]
  torch::Tensor bias_;    // [size]; kLayer only
};

}  // namespace zeroth::model
