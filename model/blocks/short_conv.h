// The short convolution of a layer, in place of attention (LFM2).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device/tensor.h"
#include "model/blocks/linear.h"
#include "model/blocks/mixer.h"
#include "model/blocks/sequence_tables.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// ShortConv maps x to a product of c times the convolution of b times v, where b, c and v are
// products of x.
class ShortConv : public Mixer {
 public:
  // The ranks of `tp` split the channels. Parameters are products, of which one rank has b, c and v
  // as `in`, and the output product is `out`, and `depthwise.weight` [channels, 1, kernel] and
  // `depthwise.bias` [channels].
  ShortConv(const ModelSpec& spec, std::shared_ptr<SequenceTables> tables, TensorParallelPtr tp);

  torch::Tensor mix(const torch::Tensor& x, const MicroBatch& batch) override;
  Splits splits(const std::string& prefix) const override;

 private:
  TensorParallelPtr tp_;
  int64_t full_channels_, channels_, first_channel_;
  std::shared_ptr<SequenceTables> tables_;
  std::shared_ptr<Linear> in_, b_, c_, v_;  // the first on one rank, the others on several
  torch::Tensor weight_, bias_;
};

}  // namespace zeroth::model
