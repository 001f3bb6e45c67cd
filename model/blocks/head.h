// The last block: final norm, projection onto the vocabulary, loss.
#pragma once

#include <cstdint>
#include <memory>

#include "model/block.h"
#include "model/blocks/norm.h"
#include "model/spec.h"

namespace zeroth::model {

class Head : public Block {
 public:
  // tied_weight: the embedding's weight, which the head then registers too; undefined: the head has
  // its own. max_logits: of HeadLossOptions.
  Head(const ModelSpec& spec, const torch::Tensor& tied_weight, int64_t max_logits = 0);

  // The loss does not contain batch.grad_scale: that is the gradient which its backward starts
  // from.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool delivers_gradients() const override { return true; }

 private:
  std::shared_ptr<Norm> norm_;
  torch::Tensor weight_;  // [vocab, hidden]
  int64_t max_logits_;
};

}  // namespace zeroth::model
