// StableLM: Llama with LayerNorm and rotary embeddings of a quarter of each head; the larger ones
// with attention and MLP side by side and norms of q and k.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_layernorm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.k_layernorm."},
};

// One norm for each head.
constexpr StackedName kStackedNames[] = {
    {"layers.#.attention.q_norm.weight", "layers.#.self_attn.q_layernorm.norms.#.weight"},
    {"layers.#.attention.k_norm.weight", "layers.#.self_attn.k_layernorm.norms.#.weight"},
};

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 4096,
                .kv_heads = 32,
                .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true},
                .norm_eps_key = "layer_norm_eps",
                .rope = {.is_partial = true, .partial_factor = 0.25}});
  spec.qkv_bias = config.flag("use_qkv_bias", false);
  if (config.flag("use_parallel_residual", false))
    spec.parallel_residual = ParallelResidual::kOneNorm;
  if (config.flag("qk_layernorm", false)) spec.qk_norm = QkNorm::kPerHeadOwnWeight;
  spec.qk_norm_spec.bias = false;
}

}  // namespace

Family stablelm_family() {
  return {.model_type = "stablelm",
          .read = read,
          .names = kNames,
          .stacked = kStackedNames,
          .lora_targets = llama_targets()};
}

}  // namespace zeroth::model
