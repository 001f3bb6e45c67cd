// The last block: final norm, projection onto the vocabulary, and loss. The loss is computed in
// chunks of tokens, because the logits of a full micro-batch would be the largest tensor of all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/embedding.h"
#include "model/blocks/lora.h"
#include "model/blocks/norm.h"
#include "model/spec.h"

namespace zeroth::model {

// Returns the default number of rows whose logits, in `dtype`, are in memory at once. On a GPU it
// is a multiple of the tile of its products.
int64_t default_chunk_rows(torch::DeviceType device, torch::Dtype dtype, int64_t vocab);

// A HeadTerm is a part of the logits, x weight^T: x [tokens, width] and weight [vocab, width], or
// bias [vocab] with x [tokens, 1] ones. The first term is no bias.
struct HeadTerm {
  torch::Tensor x, weight;

  bool is_bias() const { return weight.dim() == 1; }
};

struct HeadLossOptions {
  double divisor = 1;  // the sum over tokens is divided by it
  // Max number of logits at once, in the dtype of x; 0 chooses by device: 16Mi on the CPU, 512 MiB
  // on a GPU, whose products need more rows. A single chunk keeps its logits for the backward.
  // Several chunks recompute them, unless `gradient` is given.
  int64_t max_logits = 0;
  // The gradient that will enter the backward, if it is known; 0 if not. Each of several chunks is
  // then visited once, for its loss and all gradients, which stay in memory until the backward: of
  // each term one of x's size and one of weight's (in fp32 where products accumulate in fp32). If
  // another gradient enters, it scales them.
  double gradient = 0;
  // The tensor that will enter the backward and that holds `gradient`, if the caller has it. If
  // that tensor does enter, the gradients are delivered as they are; any other costs a pass that
  // scales them.
  torch::Tensor grad_output = {};
  // [n] int64 on the device of targets: ascending indices of the label tokens. If it is undefined,
  // head_loss() searches for them, for which it has to wait for a GPU.
  torch::Tensor label_indices = {};
  // Set where tensor-parallel ranks split the vocabulary: weights are then this rank's part of it,
  // each x and the loss are equal on all ranks, and the gradient of x is this rank's partial sum.
  // If unset, weights are full.
  std::optional<VocabShard> vocab_shard = {};
  double softcap = 0;  // a logit z becomes softcap * tanh(z / softcap); 0: it stays
};

// Returns the fp32 scalar loss of the logits that are the sum of the terms, one at least: exactly 0
// with zero gradients when there are no label tokens. All terms have one dtype; targets [tokens]
// are int64 or kIgnoreIndex. The backward runs once and adds to open gradients of weights in place.
// With a split vocabulary, ranks exchange three numbers for each token, and never logits.
torch::Tensor head_loss(const std::vector<HeadTerm>& terms, const torch::Tensor& targets,
                        const HeadLossOptions& options);

class Head : public Block {
 public:
  // `tied_weight` is the embedding's weight, which the head then registers too; if it is undefined,
  // the head has its own. `max_logits`: see HeadLossOptions. The ranks of `tp` split the
  // vocabulary.
  Head(const ModelSpec& spec, const torch::Tensor& tied_weight, int64_t max_logits = 0,
       TensorParallelPtr tp = nullptr);

  // Returns the loss, or logits without targets. The loss does not contain batch.grad_scale: that
  // is the gradient from which its backward starts.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool accumulates_grads() const override { return true; }
  std::optional<Splits> splits() const override;

  // Adds an adapter, whose factors are the parameters `lora_A` [r, hidden] and `lora_B` [vocab, r].
  // Ranks that split the vocabulary have all of A and their rows of B.
  void add_adapter(int64_t r, double scale, const DropoutSite& dropout);

 private:
  // Returns the products of which the logits of x [..., hidden] are the sum.
  std::vector<HeadTerm> terms(const torch::Tensor& x, const MicroBatch& batch) const;
  torch::Tensor logits(const std::vector<HeadTerm>& terms) const;
  // Returns the logits [tokens, vocab] of the tokens of all ranks.
  torch::Tensor gather_logits(const std::vector<HeadTerm>& terms) const;

  VocabShard vocab_shard_;
  std::shared_ptr<Norm> norm_;
  torch::Tensor weight_;  // [vocab, hidden]
  torch::Tensor bias_;    // [vocab]; undefined without one
  std::optional<LoraAdapter> adapter_;
  int64_t max_logits_;
  double multiplier_, softcap_;  // of the logits
};

}  // namespace zeroth::model
