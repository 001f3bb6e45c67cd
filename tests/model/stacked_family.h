// A family whose files hold the experts, and the rows of q_norm, each as a tensor of its own. Its
// head is embed_out, and it skips tensors.
#pragma once

#include "model/hf/families/family.h"

namespace zeroth::model {

inline constexpr NamePair kStackedNames[] = {
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.gate_up_proj"},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.down_proj"},
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_layernorm."},
    {"head.norm.", "norm."}};

inline constexpr StackedName kStacked[] = {
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.#.w1.weight", 0, 2},
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.#.w3.weight", 1, 2},
    {"layers.#.mlp.experts.down", "layers.#.block_sparse_moe.experts.#.w2.weight"},
    {"layers.#.attention.q_norm.weight", "layers.#.self_attn.q_layernorm.norms.#.weight"}};

inline constexpr std::string_view kSkipped[] = {"mtp."};

inline Family stacked_family() {
  return {.model_type = "stacked",
          .read = nullptr,
          .names = kStackedNames,
          .stacked = kStacked,
          .head = "embed_out.",
          .skips_later_layers = true,
          .skipped_prefixes = kSkipped};
}

}  // namespace zeroth::model
