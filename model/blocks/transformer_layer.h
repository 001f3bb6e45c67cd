// One layer of the transformer: attention and MLP, each on a normalised input and added to the
// residual stream.
#pragma once

#include <cstdint>
#include <memory>

#include "model/block.h"
#include "model/blocks/attention.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/spec.h"

namespace zeroth::model {

class TransformerLayer : public Block {
 public:
  TransformerLayer(const ModelSpec& spec, int64_t index, std::shared_ptr<SequenceTables> tables);

  torch::Tensor forward(const torch::Tensor& x, const MicroBatch& batch) override;
  bool delivers_gradients() const override { return true; }

 private:
  DropSite drop_attention_, drop_mlp_;  // of what the halves add to the residual stream
  std::shared_ptr<Norm> attention_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Norm> mlp_norm_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace zeroth::model
