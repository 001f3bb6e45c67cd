// The last block: final norm, projection onto the vocabulary, and loss, which is computed in chunks
// of tokens: logits of a whole micro-batch would be the largest tensor of all.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "model/block.h"
#include "model/blocks/norm.h"
#include "model/blocks/vocab_shard.h"
#include "model/spec.h"

namespace zeroth::model {

// Rows of which the logits, in `dtype`, stand at once where the options do not say it. On a GPU
// they are whole tiles of its products.
int64_t default_chunk_rows(torch::DeviceType device, torch::Dtype dtype, int64_t vocab);

struct HeadLossOptions {
  double divisor = 1;  // of the sum over tokens
  // Most logits at once, in the dtype of x; 0 chooses by device: 16Mi on the CPU, 512 MiB on a GPU,
  // whose products need more rows. One chunk keeps them for the backward. Several compute them
  // again, unless `gradient` is given.
  int64_t max_logits = 0;
  // The gradient that will enter the backward, where that is known: of several chunks each is then
  // visited once, for its loss and both gradients, which wait for the backward in memory: as x, and
  // as weight (in fp32 where products are summed into that). Another one that enters scales them.
  // 0: not known.
  double gradient = 0;
  // Holds `gradient`, where the caller has the tensor that will enter. If that one does enter, the
  // gradients are delivered as they are; any other costs a pass that multiplies them.
  torch::Tensor grad_output = {};
  // [n] int64 on the device of targets: those that are trained, ascending. Undefined: they are
  // looked for, and a GPU has to be waited for.
  torch::Tensor label_indices = {};
  // Where ranks share the vocabulary: `weight` is this rank's part of it, x is the same on all, and
  // so is the loss; the gradient of x is this rank's addend. Unset: `weight` is all.
  std::optional<VocabShard> vocab_shard = {};
};

// x [tokens, hidden] and weight [vocab, hidden] of one dtype, targets [tokens] int64 or
// kIgnoreIndex. Returns the fp32 scalar loss: exactly 0 with zero gradients when no token is
// trained. Its backward runs once and adds to an open gradient of `weight` in place. With a shared
// vocabulary three numbers for each token cross the ranks, and never logits.
torch::Tensor head_loss(const torch::Tensor& x, const torch::Tensor& weight,
                        const torch::Tensor& targets, const HeadLossOptions& options);

class Head : public Block {
 public:
  // tied_weight: the embedding's weight, which the head then registers too; undefined: the head has
  // its own. max_logits: of HeadLossOptions. Several `ranks` share the vocabulary.
  Head(const ModelSpec& spec, const torch::Tensor& tied_weight, int64_t max_logits = 0,
       TensorParallelPtr tp = nullptr);

  // The loss does not contain batch.grad_scale: that is the gradient which its backward starts
  // from.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool accumulates_grads() const override { return true; }
  std::optional<Splits> splits() const override;

 private:
  // Tokens of all ranks [tokens, hidden] -> their logits [tokens, vocab].
  torch::Tensor gather_logits(const torch::Tensor& x) const;

  VocabShard vocab_shard_;
  std::shared_ptr<Norm> norm_;
  torch::Tensor weight_;  // [vocab, hidden]
  int64_t max_logits_;
};

}  // namespace zeroth::model
