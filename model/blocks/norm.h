// Norm normalizes over the last dimension.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "device/tensor.h"
#include "model/spec.h"

namespace zeroth::model {

class Norm : public torch::nn::Module {
 public:
  Norm(NormKind kind, int64_t size, double eps);

  // Returns x [..., size] normalized. x has any floating dtype; the result is computed in fp32 and
  // returned in x's dtype.
  torch::Tensor forward(const torch::Tensor& x) const;

  // A `Residual` is a residual stream (x, or x + addend) and its norm. The two gradients that come
  // back are summed by the kernel that computes the norm's gradient.
  struct Residual {
    torch::Tensor stream;
    torch::Tensor norm;
  };
  Residual forward_residual(const torch::Tensor& x,
                            const std::optional<torch::Tensor>& addend = std::nullopt) const;

 private:
  NormKind kind_;
  double eps_;
  torch::Tensor weight_;  // [size]
  torch::Tensor bias_;    // [size]; NormKind::kLayer only
};

}  // namespace zeroth::model
