// The first block: token ids to vectors, plus a trained vector per position where the family has
// them.
#pragma once

#include <cstdint>

#include "model/block.h"
#include "model/kernels/dropout.h"
#include "model/spec.h"

namespace zeroth::model {

class Embedding : public Block {
 public:
  explicit Embedding(const ModelSpec& spec);

  // Reads batch.tokens and batch.positions; x is not used. Throws an Error when a row is longer
  // than the position table.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool delivers_gradients() const override { return true; }

  const torch::Tensor& weight() const { return weight_; }  // [vocab, hidden]

 private:
  DropSite drop_;
  torch::Tensor weight_;
  torch::Tensor positions_;  // [max_positions, hidden]; undefined with rotary embeddings
};

}  // namespace zeroth::model
