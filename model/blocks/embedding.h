// The first block maps token ids to vectors and adds a trained vector per position in families that
// have them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/linear.h"
#include "model/blocks/lora.h"
#include "model/blocks/norm.h"
#include "model/kernels/dropout.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// A VocabShard is the range of a vocabulary's rows that a tensor-parallel rank has, in embedding
// and head. Each rank has ceil(vocab / ranks) rows, and the last one the remaining ones: nothing is
// padded, so nothing has to be masked.
struct VocabShard {
  explicit VocabShard(int64_t size, TensorParallelPtr tensor_parallel = nullptr);

  int64_t full_size;       // tokens
  int64_t begin;           // first token of this rank's range
  int64_t local_size;      // tokens of this rank's range
  int64_t max_local_size;  // max over all ranks
  TensorParallelPtr tp;

  // Returns the split of a block's parameter, whose dimension `dim` is the vocabulary's;
  // nullopt if the ranks do not split it.
  std::optional<Splits> splits(const std::string& name, const torch::Tensor& parameter,
                               int64_t dim) const;

  // LocalRows maps tokens to rows of this rank's part: 0 where another rank has the token, and [n]
  // bool that marks the local ones. On the CPU, local_rows() throws an Error for a token that no
  // rank has, with a single rank too.
  struct LocalRows {
    torch::Tensor rows, is_local;
  };
  LocalRows local_rows(const torch::Tensor& tokens) const;
};

// PerLayerInputs computes what ModelSpec::per_layer_input describes.
class PerLayerInputs : public torch::nn::Module {
 public:
  // Parameters are `weight` [vocab, layers * size], of which the ranks of `tp` split the
  // vocabulary, those of the Linear `projection` and of the Norm `norm`, which all layers share.
  PerLayerInputs(const ModelSpec& spec, TensorParallelPtr tp);

  // Returns [..., layers * size], the first layer's first, of the embeddings [..., hidden].
  torch::Tensor forward(const torch::Tensor& embeddings, const MicroBatch& batch) const;
  // Returns the split of `weight`, by its name in the block.
  std::optional<Splits> splits(const std::string& prefix) const;

 private:
  VocabShard vocab_shard_;
  int64_t size_;
  int64_t padding_token_;
  torch::Tensor weight_;
  std::shared_ptr<Linear> projection_;
  std::shared_ptr<Norm> norm_;
};

class Embedding : public Block {
 public:
  // The ranks of `tp` split the vocabulary; each returns its shard of the tokens.
  explicit Embedding(const ModelSpec& spec, TensorParallelPtr tp = nullptr);

  // Reads batch.tokens and batch.positions; x is not used. Behind each token's embedding are the
  // per-layer inputs, in families that have them. Throws an Error when a row is longer than the
  // position table.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool accumulates_grads() const override { return true; }
  std::optional<Splits> splits() const override;

  // Adds an adapter to the vectors of tokens, whose factors are the parameters `lora_A` [r, vocab]
  // and `lora_B` [hidden, r], or to those of positions: `positions.lora_A` [r, max_positions] and
  // `positions.lora_B`. Ranks that split the vocabulary have their columns of A and all of B.
  void add_adapter(int64_t r, double scale);
  void add_positions_adapter(int64_t r, double scale);

  const torch::Tensor& weight() const { return weight_; }  // [vocab, hidden]

 private:
  // Returns the positions of all tokens, [1 or batch, seq], or of this rank's shard, [rows]. Rows
  // that pad the shard get the last token's position: any position will do.
  torch::Tensor local_positions(const MicroBatch& batch) const;

  VocabShard vocab_shard_;
  int64_t padding_token_;
  double multiplier_;
  bool rounds_multiplier_;
  int64_t position_offset_;
  DropoutSite dropout_;
  torch::Tensor weight_;
  torch::Tensor positions_;  // [offset + max_positions, hidden]; undefined without
  std::optional<LoraAdapter> adapter_, positions_adapter_;
  std::shared_ptr<Norm> norm_;                 // null without
  std::shared_ptr<PerLayerInputs> per_layer_;  // null without
};

}  // namespace zeroth::model
