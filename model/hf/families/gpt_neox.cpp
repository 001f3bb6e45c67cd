// GPT-NeoX and Pythia: attention and MLP side by side, each with a LayerNorm of its own, q, k and v
// of each head together, and rotary embeddings of a quarter of each head.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"embedding.weight", "embed_in.weight"},
    {"layers.#.attention.qkv.", "layers.#.attention.query_key_value."},
    {"layers.#.attention.o.", "layers.#.attention.dense."},
    {"layers.#.mlp.up.", "layers.#.mlp.dense_h_to_4h."},
    {"layers.#.mlp.down.", "layers.#.mlp.dense_4h_to_h."},
    {"head.norm.", "final_layer_norm."},
};

constexpr std::string_view kTargets[] = {"query_key_value"};
constexpr std::string_view kBuffers[] = {"attention.bias", "attention.masked_bias",
                                         "rotary_emb.inv_freq"};

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 2048,
                .has_kv_heads = false,
                .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true},
                .norm_eps_key = "layer_norm_eps",
                .activation = "gelu",
                .rope = {.theta_key = "rotary_emb_base",
                         .is_partial = true,
                         .partial_factor = 0.25,
                         .partial_key = "rotary_pct"}});
  if (config.flag("use_parallel_residual", true))
    spec.parallel_residual = ParallelResidual::kTwoNorms;
  spec.qkv_layout = QkvLayout::kGrouped;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", true);
  spec.mlp_bias = true;
  spec.residual_dropout = spec.embedding_dropout = read_dropout(config, "hidden_dropout", 0);
  config.number("classifier_dropout", 0.1);  // of a head for other tasks
  // GPT-NeoX-20B has these names of the dropouts, which transformers does not read.
  for (const char* key : {"attention_probs_dropout_prob", "hidden_dropout_prob"}) config.find(key);
}

}  // namespace

Family gpt_neox_family() {
  return {.model_type = "gpt_neox",
          .read = read,
          .names = kNames,
          .prefix = "gpt_neox.",
          .head = "embed_out.",
          .buffers = kBuffers,
          .lora_targets = kTargets,
          .dropouts = {.residual = true, .embedding = true},
          .pads = false};
}

}  // namespace zeroth::model
