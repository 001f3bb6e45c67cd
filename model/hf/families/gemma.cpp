// Gemma 1 to 3: norms whose weights are stored around 0, and a factor of the embedding's output.
// Gemma 2 and 3 normalize the outputs of attention and MLP, too, and have a window in some layers.
#include <cmath>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kSandwichNames[] = {
    {"layers.#.attention_post_norm.", "layers.#.post_attention_layernorm."},
    {"layers.#.mlp_norm.", "layers.#.pre_feedforward_layernorm."},
    {"layers.#.mlp_post_norm.", "layers.#.post_feedforward_layernorm."},
};

// Refuses a file whose two keys of the activation differ: the version of transformers decides which
// one is read.
void check_activation(ConfigReader& config, const DecoderKeys& keys) {
  const std::string used = config.text(keys.activation_key, keys.activation);
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string other = config.text(key, used);
    if (other != used)
      config.add_error(key, "is \"{}\", but {} is \"{}\": keep the one that is meant in both",
                       shortened(other), keys.activation_key, shortened(used));
  }
}

// Reads what the three have in common, with keys.window and keys.rope of one of them.
void read_gemma(ConfigReader& config, ModelSpec& spec, DecoderKeys keys) {
  keys.head_dim = 256;
  keys.norm.weight_offset = 1;
  keys.norm.product_in_fp32 = true;
  keys.activation = "gelu_pytorch_tanh";
  keys.tied = true;
  read_decoder(config, spec, keys);
  check_activation(config, keys);
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.rounds_embedding_multiplier = true;
}

void read_gemma1(ConfigReader& config, ModelSpec& spec) {
  read_gemma(config, spec, {.max_positions = 8192, .kv_heads = 16});
}

// Reads what Gemma 2 and 3 have in common.
void read_sandwich(ConfigReader& config, ModelSpec& spec, DecoderKeys keys) {
  keys.kv_heads = 4;
  keys.activation_key = "hidden_activation";
  keys.window.allowed = keys.window.has_layer_types = true;
  keys.window.size = 4096;
  read_gemma(config, spec, keys);
  spec.norm_placement = NormPlacement::kSandwich;
  const double scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar", 256));
  for (LayerSpec& layer : spec.layers) layer.score_scale = scale;
}

void read_gemma2(ConfigReader& config, ModelSpec& spec) {
  read_sandwich(config, spec, {.max_positions = 8192, .window = {.full_every = 2}});
  spec.score_softcap = read_softcap(config, "attn_logit_softcapping", 50);
  spec.logits_softcap = read_softcap(config, "final_logit_softcapping", 30);
}

void read_gemma3(ConfigReader& config, ModelSpec& spec) {
  read_sandwich(config, spec,
                {.max_positions = 131072,
                 .rope = {.theta = 1000000, .layer_type = "full_attention"},
                 .local_rope = RopeKeys{.theta_key = "rope_local_base_freq",
                                        .layer_type = "sliding_attention"},
                 .window = {.full_every = 6, .full_every_key = "sliding_window_pattern"}});
  spec.qk_norm = QkNorm::kPerHead;
  spec.logits_softcap = read_softcap(config, "final_logit_softcapping", 0);
}

}  // namespace

Family gemma_family() {
  return {.model_type = "gemma",
          .read = read_gemma1,
          .lora_targets = llama_targets(),
          .padding_token = 0};
}

Family gemma2_family() {
  return {.model_type = "gemma2",
          .read = read_gemma2,
          .names = kSandwichNames,
          .lora_targets = llama_targets(),
          .padding_token = 0};
}

Family gemma3_text_family() {
  return {.model_type = "gemma3_text",
          .read = read_gemma3,
          .names = kSandwichNames,
          .lora_targets = llama_targets(),
          .padding_token = 0};
}

}  // namespace zeroth::model
