// The only product with a weight.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace zeroth::model {

enum class WeightLayout { kOutIn, kInOut };

struct LinearShape {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = false;
  WeightLayout layout = WeightLayout::kOutIn;
};

// Parameters only, on the meta device: `weight` [out, in] or [in, out], and `bias` [out] where
// there is one.
class Linear : public torch::nn::Module {
 public:
  explicit Linear(const LinearShape& shape);

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without a bias
  WeightLayout layout;
};

// x [..., in] -> [..., out] = x W^T + b. The backward adds to open gradients of weight and bias in
// place.
torch::Tensor linear(const torch::Tensor& x, const Linear& layer);

// Two or three products of the same x: its gradient is summed inside the products.
std::vector<torch::Tensor> linear(const torch::Tensor& x, const Linear& a, const Linear& b);
std::vector<torch::Tensor> linear(const torch::Tensor& x, const Linear& a, const Linear& b,
                                  const Linear& c);

// The product with a bare weight [out, in].
torch::Tensor project(const torch::Tensor& x, const torch::Tensor& weight);

}  // namespace zeroth::model
