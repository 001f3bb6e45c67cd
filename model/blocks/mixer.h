// A Mixer is the part of a layer in which the tokens of a sequence see each other: attention, or
// what a layer has in its place.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/linear.h"
#include "model/micro_batch.h"

namespace zeroth::model {

class Mixer : public torch::nn::Module {
 public:
  // Returns a tensor in the shape of x: [batch, seq, hidden], or this rank's shard of the tokens
  // [rows, hidden].
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) {
    return linear(mix(x, batch), *output_, batch);
  }
  // Returns the input of the output product.
  virtual torch::Tensor mix(const torch::Tensor& x, const MicroBatch& batch) = 0;
  const Linear& output() const { return *output_; }

  // Returns the splits of what is no product, by names in the block, where the mixer's own begin
  // with `prefix`.
  virtual Splits splits(const std::string& prefix) const = 0;

 protected:
  std::shared_ptr<Linear> output_;  // set by the constructor of each mixer
};

}  // namespace zeroth::model
