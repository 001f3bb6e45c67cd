// Norm normalizes over the last dimension.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "device/tensor.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

class Norm : public torch::nn::Module {
 public:
  // With `heads`, x is [..., heads, size], and each head has a weight of its own.
  Norm(const NormSpec& spec, int64_t size, int64_t heads = 0);

  // Returns x [..., size] normalized. x has any floating dtype; the result is computed in fp32 and
  // returned in x's dtype.
  torch::Tensor forward(const torch::Tensor& x) const;

  bool has_weight_per_head() const { return weight_.defined() && weight_.dim() == 2; }

  // A `Residual` is a residual stream (x, or x + addend) and its norm. The two gradients that come
  // back are summed by the kernel that computes the norm's gradient.
  struct Residual {
    torch::Tensor stream;
    torch::Tensor norm;
  };
  Residual forward_residual(const torch::Tensor& x,
                            const std::optional<torch::Tensor>& addend = std::nullopt) const;

 private:
  // Without `weight` the result is not scaled.
  Residual normalize(const torch::Tensor& x, const torch::Tensor& weight,
                     const std::optional<torch::Tensor>& addend) const;

  NormSpec spec_;
  int64_t size_;
  torch::Tensor weight_;  // [size] or [heads, size]; undefined without one
  torch::Tensor bias_;    // [size]; undefined without one
};

// SplitNorm is an RMS norm over a last dimension of which each tensor-parallel rank has a part,
// [..., shard.extent] of [..., shard.full_size].
class SplitNorm : public torch::nn::Module {
 public:
  // The ranks' parts; see Split.
  struct Shard {
    int64_t begin, extent, full_size;
    int num_replicas;
  };
  SplitNorm(const NormSpec& spec, const Shard& shard, TensorParallelPtr tp);

  // Collective.
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  NormSpec spec_;
  Shard shard_;
  TensorParallelPtr tp_;
  torch::Tensor weight_;  // [extent]
};

}  // namespace zeroth::model
