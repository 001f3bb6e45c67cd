// The first block maps token ids to vectors and adds a trained vector per position in families that
// have them.
#pragma once

#include <optional>

#include "model/block.h"
#include "model/blocks/vocab_shard.h"
#include "model/kernels/dropout.h"
#include "model/spec.h"

namespace zeroth::model {

class Embedding : public Block {
 public:
  // The ranks of `tp` split the vocabulary; each returns its shard of the tokens.
  explicit Embedding(const ModelSpec& spec, TensorParallelPtr tp = nullptr);

  // Reads batch.tokens and batch.positions; x is not used. Throws an Error when a row is longer
  // than the position table.
  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool accumulates_grads() const override { return true; }
  std::optional<Splits> splits() const override;

  const torch::Tensor& weight() const { return weight_; }  // [vocab, hidden]

 private:
  // Returns the vectors of the positions of a shard of the tokens, [rows, hidden].
  torch::Tensor position_embeddings(const MicroBatch& batch, const SequenceShard& shard) const;
  torch::Tensor forward_local_shard(const MicroBatch& batch) const;

  VocabShard vocab_shard_;
  int64_t padding_token_;
  DropoutSite dropout_;
  torch::Tensor weight_;
  torch::Tensor positions_;  // [max_positions, hidden]; undefined with rotary embeddings
};

}  // namespace zeroth::model
