// A `Block` is one link of the chain that makes up a model. Every strategy works on one block at a
// time.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/micro_batch.h"

namespace zeroth::model {

// A `Split` places a tensor-parallel rank's tensor as a slice of a full parameter. The gradient
// from backward is the rank's partial sum over all ranks that hold the same slice.
struct Split {
  std::string full_name;       // full parameter's name in the block: "attention.qkv.weight"
  std::vector<int64_t> shape;  // of the full parameter
  std::vector<int64_t> begin;  // offset of the slice in each dimension; its sizes are the tensor's
  int num_replicas = 1;        // so many neighboring ranks of dim tp hold the same slice
  // Elements of the largest slice that any of these ranks holds; 0 if all are as large as this one.
  // Buffers are laid out by it, so that all ranks gather equal sizes at the same time.
  int64_t max_numel = 0;
};

// Splits are keyed by the name of a parameter or buffer in its block; those without an entry are
// full on every rank.
using Splits = std::map<std::string, Split>;

// A `Block` registers its parameters as any torch module does; they may lie on the meta device
// until the engine allocates their memory. A parameter that several blocks register (the same
// tensor object: a tied weight) is trained and saved once. forward() must use parameters only while
// it runs, must not change x in place, and may run again with equal results (recompute). It may run
// for other micro-batches before the backward pass of the first one. It is called on one thread at
// a time.
class Block : public torch::nn::Module {
 public:
  // `label` is the prefix of the names of the block's parameters: "layers.3" + "." +
  // "attention.q.weight".
  explicit Block(std::string label) : label_(std::move(label)) {}

  // Returns the next block's input. x is the previous block's output, [batch, seq, n] in working
  // precision (undefined for the first block, which reads batch.tokens), where n may differ from
  // block to block. The last block returns the fp32 scalar loss (sum over label tokens /
  // batch.loss_normalizer), or logits [batch, seq, vocab] when batch.targets is undefined.
  virtual torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) = 0;

  // Returns whether backward delivers the gradient of every parameter through
  // model/blocks/main_grad.h and so writes gradients that are still unwritten. If it does not, the
  // engine has to fill the gradients with zeros first, which costs a pass over them.
  virtual bool accumulates_grads() const { return false; }

  // Returns how the block's parameters are split over tensor-parallel ranks, for which x is not
  // [batch, seq, n] but this rank's shard of the flattened tokens, [rows, n]
  // (model/tensor_parallel.h). A block that returns nullopt is rejected under tensor parallelism. A
  // buffer is either equal on all ranks, or it is a slice too and is listed among the splits.
  virtual std::optional<Splits> splits() const { return std::nullopt; }

  // Returns the names of frozen parameters that stay in fp32 in runs and models of 16 bits.
  virtual std::vector<std::string> keep_in_fp32() const { return {}; }

  // Returns the number of the block's experts, of which its router counts the tokens in
  // batch.router_sums; 0 without a router.
  virtual int64_t num_experts() const { return 0; }

  const std::string& label() const { return label_; }

 private:
  std::string label_;
};

using Blocks = std::vector<std::shared_ptr<Block>>;

}  // namespace zeroth::model
