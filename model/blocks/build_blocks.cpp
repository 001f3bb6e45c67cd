#include "model/blocks/build_blocks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "model/blocks/transformer_layer.h"
#include "model/kernels/nf4_values.h"

namespace zeroth::model {

Blocks build_blocks(const ModelSpec& spec, const TensorParallelPtr& tp) {
  if (tp) require_divisible(spec, tp->size());
  const auto tables = std::make_shared<SequenceTables>(spec);
  const auto embedding = std::make_shared<Embedding>(spec, tp);
  Blocks blocks = {embedding};
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    blocks.push_back(std::make_shared<TransformerLayer>(spec, layer, tables, tp));
  }
  blocks.push_back(
      std::make_shared<Head>(spec, spec.tie_word_embeddings ? embedding->weight() : torch::Tensor(),
                             /*max_logits=*/0, tp));
  return blocks;
}

void require_divisible(const ModelSpec& spec, int64_t ranks) {
  std::vector<std::string> reasons;
  const auto require = [&](bool holds, const char* what, int64_t size, const char* rule) {
    if (!holds) reasons.push_back(fmt::format("{} {} {}", size, what, rule));
  };
  // Returns the sizes that layers have.
  const auto of_layers = [&](int64_t (ModelSpec::*size)(int64_t) const) {
    std::set<int64_t> sizes;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) sizes.insert((spec.*size)(layer));
    return sizes;
  };
  require(spec.num_heads % ranks == 0, "attention heads", spec.num_heads,
          "are not a multiple of it");
  for (const int64_t heads : of_layers(&ModelSpec::layer_kv_heads))
    require(heads % ranks == 0 || ranks % heads == 0, "key/value heads", heads,
            "are neither a multiple nor a divisor of it");
  require(spec.qkv_layout != QkvLayout::kGrouped || spec.num_kv_heads % ranks == 0,
          "groups of heads", spec.num_kv_heads, "are not a multiple of it");
  if (spec.delta_net)
    require(spec.delta_net->key_heads % ranks == 0, "key heads of the gated delta net",
            spec.delta_net->key_heads, "are not a multiple of it");
  if (spec.short_conv)
    require(spec.hidden_size % ranks == 0, "channels of short convolutions", spec.hidden_size,
            "are not a multiple of it");
  std::set<int64_t> sizes;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    if (spec.has_mlp(layer)) sizes.insert(spec.mlp_size(layer));
  if (spec.experts && spec.experts->shared_intermediate_size > 0)
    sizes.insert(spec.experts->shared_intermediate_size);
  for (const int64_t size : sizes)
    require(size % ranks == 0, "as intermediate size", size, "is not a multiple of it");
  if (spec.experts)
    require(spec.experts->num_experts % ranks == 0, "experts", spec.experts->num_experts,
            "are not a multiple of it");
  if (spec.quantization) {
    // A rank's part then has the blocks of the full weight.
    const auto require_blocks = [&](int64_t size, const char* what) {
      require(size % kNf4Block == 0, what, size, "are no multiple of 64, a block of NF4");
    };
    require_blocks(spec.hidden_size, "inputs of products");
    for (const int64_t head_dim : of_layers(&ModelSpec::layer_head_dim))
      require_blocks(spec.num_heads * head_dim / ranks, "inputs of o_proj on a rank");
    if (spec.delta_net)
      require_blocks(spec.delta_net->value_heads * spec.delta_net->value_dim / ranks,
                     "inputs of out_proj on a rank");
    if (spec.short_conv) require_blocks(spec.hidden_size / ranks, "inputs of out_proj on a rank");
    require_blocks(spec.intermediate_size / ranks, "inputs of down_proj on a rank");
  }
  std::set<int64_t> vocabularies = {spec.vocab_size};
  if (spec.per_layer_input) vocabularies.insert(spec.per_layer_input->vocab_size);
  for (const int64_t size : vocabularies)
    require((size + ranks - 1) / ranks * (ranks - 1) < size, "tokens of the vocabulary", size,
            "leave a rank without any");
  if (reasons.empty()) return;
  throw Error(
      "tensor_parallel.autotp_size (--tensor-parallel) {}: this {} model cannot be split over {} "
      "ranks: {}",
      ranks, spec.family, ranks, fmt::join(reasons, "; "));
}

}  // namespace zeroth::model
