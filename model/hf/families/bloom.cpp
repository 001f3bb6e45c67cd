// BLOOM: ALiBi, a LayerNorm of the embedding, q, k and v of each head together, and a plain MLP.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"embedding.weight", "word_embeddings.weight"},
    {"embedding.norm.", "word_embeddings_layernorm."},
    {"layers.#.attention_norm.", "h.#.input_layernorm."},
    {"layers.#.attention.qkv.", "h.#.self_attention.query_key_value."},
    {"layers.#.attention.o.", "h.#.self_attention.dense."},
    {"layers.#.mlp_norm.", "h.#.post_attention_layernorm."},
    {"layers.#.mlp.up.", "h.#.mlp.dense_h_to_4h."},
    {"layers.#.mlp.down.", "h.#.mlp.dense_4h_to_h."},
    {"head.norm.", "ln_f."},
};

constexpr std::string_view kTargets[] = {"query_key_value"};

void read(ConfigReader& config, ModelSpec& spec) {
  // Published files have one of two names for each size.
  const auto either = [&](const char* first, const char* second) {
    return config.find(first) != nullptr ? first : second;
  };
  read_sizes(config, spec,
             {.hidden = either("n_embed", "hidden_size"),
              .layers = either("num_hidden_layers", "n_layer"),
              .heads = either("num_attention_heads", "n_head"),
              .default_layers = 2});
  // If both are given, the first one wins in transformers.
  config.require("hidden_size", spec.hidden_size);
  config.require("n_layer", spec.num_layers);
  config.require("n_head", spec.num_heads);
  spec.intermediate_size = 4 * spec.hidden_size;
  config.require("n_inner", spec.intermediate_size);
  spec.max_positions = config.size("seq_length", 2048);  // of its training
  use_alibi(spec, alibi_slopes(spec.num_heads));
  spec.norm = {
      .kind = NormKind::kLayer, .eps = config.positive("layer_norm_epsilon", 1e-5), .bias = true};
  spec.embedding_norm = true;
  spec.qkv_layout = QkvLayout::kGrouped;
  spec.gated_mlp = false;
  spec.activation = Activation::kGeluTanh;
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0);
  spec.residual_dropout = read_dropout(config, "hidden_dropout", 0);
  config.reject("apply_residual_connection_post_layernorm");
  // It leaves the biases of products out where the model was trained on several ranks.
  if (config.number("pretraining_tp", 1) > 1) config.reject("slow_but_exact");
  config.find("slow_but_exact");
}

}  // namespace

Family bloom_family() {
  return {.model_type = "bloom",
          .read = read,
          .names = kNames,
          .prefix = "transformer.",
          .lora_targets = kTargets,
          .dropouts = {.residual = true},
          .pads = false};
}

}  // namespace zeroth::model
