// One link of the chain that a model is: what every strategy works on at a time.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/micro_batch.h"
#include "model/split.h"

namespace zeroth::model {

// Parameters are registered as with any torch module; they may lie on the meta device until the
// engine gives them memory. A parameter that several blocks register (the same tensor object: a
// tied weight) is trained and saved once. forward() must use parameters only while it runs, must
// not change x in place, and may run again with equal results (recompute). It is called on one
// thread at a time.
class Block : public torch::nn::Module {
 public:
  // `label` starts the names of the block's parameters: "layers.3" + "." + "attention.q.weight".
  explicit Block(std::string label) : label_(std::move(label)) {}

  // x: the previous block's output, [batch, seq, hidden] in working precision (undefined for the
  // first block, which reads batch.tokens). Returns the next block's input. The last block returns
  // the fp32 scalar loss (sum over trained tokens / batch.loss_normalizer), or logits [batch, seq,
  // vocab] when batch.targets is undefined.
  virtual torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) = 0;

  // True: backward delivers the gradient of every parameter through model/blocks/main_grad.h,
  // and so begins it where nothing is to be added to. False costs a pass of zeros over the
  // gradient.
  virtual bool accumulates_grads() const { return false; }

  // Where several ranks share every layer (axis tensor) x is not [batch, seq, hidden] but this
  // rank's run of the flattened tokens, [rows, hidden]: model/tensor_parallel.h. A block that was
  // made for that says how its parameters are split; one that does not is refused there. A buffer
  // is the same on all ranks, or it is a box as well and stands among the splits.
  virtual std::optional<Splits> splits() const { return std::nullopt; }

  const std::string& label() const { return label_; }

 private:
  std::string label_;
};

using Blocks = std::vector<std::shared_ptr<Block>>;

}  // namespace zeroth::model
