// GPT-2: learned positions, LayerNorm, products stored [in, out].
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"embedding.weight", "wte.weight"},
    {"embedding.positions", "wpe.weight"},
    {"layers.#.attention_norm.", "h.#.ln_1."},
    {"layers.#.attention.qkv.", "h.#.attn.c_attn."},
    {"layers.#.attention.o.", "h.#.attn.c_proj."},
    {"layers.#.mlp_norm.", "h.#.ln_2."},
    {"layers.#.mlp.up.", "h.#.mlp.c_fc."},
    {"layers.#.mlp.down.", "h.#.mlp.c_proj."},
    {"head.norm.", "ln_f."},
};

constexpr std::string_view kTargets[] = {"c_attn"};
constexpr std::string_view kCausalMasks[] = {".attn.bias", ".attn.masked_bias"};

void read(ConfigReader& config, ModelSpec& spec) {
  spec.hidden_size = config.size("n_embd", {}, kMaxWidth);
  spec.num_layers = config.size("n_layer", {}, kMaxLayers);
  spec.num_heads = spec.num_kv_heads = config.size("n_head", {}, kMaxWidth);
  spec.intermediate_size = config.size("n_inner", 4 * spec.hidden_size, 16 * kMaxWidth);
  spec.windowed_layers.assign(spec.num_layers, false);
  spec.max_positions = config.size("n_positions");
  spec.head_dim = spec.num_heads > 0 ? spec.hidden_size / spec.num_heads : 0;
  require_multiple(config, "n_embd", spec.hidden_size, "n_head", spec.num_heads);
  spec.norm = NormKind::kLayer;
  spec.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.gated_mlp = false;
  spec.conv1d = spec.learned_positions = true;
  spec.scale_scores = config.flag("scale_attn_weights", true);
  spec.scale_scores_by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  spec.embedding_dropout = read_dropout(config, "embd_pdrop", 0.1);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.1);
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0.1);
  config.reject("attention_dropout");
}

}  // namespace

Family gpt2_family() {
  return {.model_type = "gpt2",
          .read = read,
          .names = kNames,
          .prefix = "transformer.",
          .buffers = kCausalMasks,
          .lora_targets = kTargets,
          .dropouts = {.residual = true, .embedding = true},
          .pads = false};
}

}  // namespace zeroth::model
