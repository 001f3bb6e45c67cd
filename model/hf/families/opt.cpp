// OPT: learned positions behind two rows that no token reads, LayerNorm, a plain MLP with ReLU.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"embedding.positions", "embed_positions.weight"},
    {"layers.#.attention_norm.", "layers.#.self_attn_layer_norm."},
    {"layers.#.attention.o.", "layers.#.self_attn.out_proj."},
    {"layers.#.mlp_norm.", "layers.#.final_layer_norm."},
    {"layers.#.mlp.up.", "layers.#.fc1."},
    {"layers.#.mlp.down.", "layers.#.fc2."},
    {"head.norm.", "final_layer_norm."},
};

void read(ConfigReader& config, ModelSpec& spec) {
  read_sizes(config, spec);
  spec.intermediate_size = config.size("ffn_dim", {}, 16 * kMaxWidth);
  for (LayerSpec& layer : spec.layers) layer.rope = LayerRope::kNone;
  spec.max_positions = config.size("max_position_embeddings", 2048);
  spec.norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true};
  spec.learned_positions = true;
  spec.position_offset = 2;
  spec.gated_mlp = false;
  spec.activation = read_activation(config, "activation_function", "relu");
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.flag("enable_bias", true);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.residual_dropout = read_dropout(config, "dropout", 0.1);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0);
  spec.initializer_range = config.number("init_std", 0.02);
  config.require("do_layer_norm_before", true);
  config.require("layer_norm_elementwise_affine", true);
  config.require("word_embed_proj_dim", spec.hidden_size);
  config.reject("_remove_final_layer_norm");
}

}  // namespace

Family opt_family() {
  return {.model_type = "opt",
          .read = read,
          .names = kNames,
          .prefix = "model.decoder.",
          .lora_targets = llama_targets(),
          .dropouts = {.residual = true},
          .padding_token = 1};
}

}  // namespace zeroth::model
