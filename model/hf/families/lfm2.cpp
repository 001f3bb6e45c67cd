// LFM2: Llama with norms of q and k, and short convolutions in place of attention in most layers.
#include <algorithm>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention_norm.", "layers.#.operator_norm."},
    {"layers.#.attention.o.", "layers.#.self_attn.out_proj."},
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_layernorm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.k_layernorm."},
    {"layers.#.conv.in.", "layers.#.conv.in_proj."},
    {"layers.#.conv.depthwise.", "layers.#.conv.conv."},
    {"layers.#.conv.out.", "layers.#.conv.out_proj."},
    {"layers.#.mlp_norm.", "layers.#.ffn_norm."},
    {"layers.#.mlp.gate.", "layers.#.feed_forward.w1."},
    {"layers.#.mlp.up.", "layers.#.feed_forward.w3."},
    {"layers.#.mlp.down.", "layers.#.feed_forward.w2."},
    {"head.norm.", "embedding_norm."},
};

// Layers have attention where layer_types or full_attn_idxs say so, and all of them without either.
void read_mixers(ConfigReader& config, ModelSpec& spec) {
  const auto listed = read_layer_list(config, spec, "full_attn_idxs");
  const auto convolve = read_layer_types(config, spec, "conv");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool convolves = convolve ? (*convolve)[static_cast<size_t>(layer)]
                                    : listed && std::ranges::find(*listed, layer) == listed->end();
    if (convolves) spec.layers[layer].mixer = LayerMixer::kShortConv;
  }
  spec.short_conv = {.kernel_size = config.size("conv_L_cache", 3, kMaxWidth),
                     .bias = config.flag("conv_bias", false)};
}

// Computes the size of the MLP, of which config.json has one and a half times as much.
void adjust_mlp_size(ConfigReader& config, ModelSpec& spec) {
  const bool rounds = !config.is_null("block_ffn_dim_multiplier");
  const double multiplier = config.positive("block_ffn_dim_multiplier", 1);
  const int64_t multiple = config.size("block_multiple_of", 256, kMaxWidth);
  if (!config.flag("block_auto_adjust_ff_dim", true)) return;
  int64_t& size = spec.intermediate_size;
  size = std::max<int64_t>(2 * size / 3, 1);
  if (!rounds) return;
  const double scaled = multiplier * static_cast<double>(size);
  if (!(scaled > 0 && scaled <= static_cast<double>(16 * kMaxWidth))) {
    config.add_error("block_ffn_dim_multiplier", "is {}, which makes an MLP of {}", multiplier,
                     scaled);
    return;
  }
  size = (static_cast<int64_t>(scaled) + multiple - 1) / multiple * multiple;
}

void read(ConfigReader& config, ModelSpec& spec) {
  // Older names, which win in transformers.
  const bool has_old_size = config.find("block_ff_dim") != nullptr;
  const bool has_old_tie = config.find("tie_embedding") != nullptr;
  read_decoder(config, spec,
               {.max_positions = 128000,
                .has_mlp = !has_old_size,
                .kv_heads = 8,
                .norm = {.eps = 1e-5},
                .norm_eps_key = "norm_eps",
                .activation_key = nullptr,
                .tied = true,
                .rope = {.theta = 1000000},
                .window = {.own_layer_types = true}});
  if (has_old_size) {
    spec.intermediate_size = config.size("block_ff_dim", {}, 16 * kMaxWidth);
    config.require("intermediate_size", spec.intermediate_size);
  }
  if (has_old_tie) spec.tie_word_embeddings = config.flag("tie_embedding", true);
  adjust_mlp_size(config, spec);
  spec.qk_norm = QkNorm::kPerHead;
  read_mixers(config, spec);
  config.reject("attention_dropout");  // transformers does not apply it
  // Keys of published files, which transformers does not read.
  for (const char* key : {"block_dim", "conv_dim", "conv_dim_out"})
    config.require(key, spec.hidden_size);
  config.require("num_heads", spec.num_heads);
  for (const char* key : {"use_pos_enc", "block_use_swiglu"}) config.require(key, true);
  for (const char* key : {"block_norm_eps", "block_mlp_init_scale", "block_out_init_scale",
                          "block_use_xavier_init", "conv_use_xavier_init"})
    config.find(key);
}

}  // namespace

Family lfm2_family() {
  return {.model_type = "lfm2",
          .read = read,
          .names = kNames,
          .dropouts = {.attention = false},
          .padding_token = 0};
}

}  // namespace zeroth::model
