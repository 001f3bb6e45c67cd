// MPT: ALiBi, LayerNorm without bias, q, k and v in one product that is clamped, no biases.
#include <nlohmann/json.hpp>

#include "base/json/json.h"
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"embedding.weight", "wte.weight"},
    {"layers.#.attention_norm.", "blocks.#.norm_1."},
    {"layers.#.attention.qkv.", "blocks.#.attn.Wqkv."},
    {"layers.#.attention.o.", "blocks.#.attn.out_proj."},
    {"layers.#.mlp_norm.", "blocks.#.norm_2."},
    {"layers.#.mlp.up.", "blocks.#.ffn.up_proj."},
    {"layers.#.mlp.down.", "blocks.#.ffn.down_proj."},
    {"head.norm.", "norm_f."},
};

constexpr std::string_view kTargets[] = {"Wqkv"};

void read_attention(ConfigReader& attention, ModelSpec& spec) {
  if (attention.number("clip_qkv", 0) != 0) spec.clip_qkv = attention.positive("clip_qkv");
  if (attention.find("softmax_scale") != nullptr) {
    const double scale = attention.positive("softmax_scale");
    for (LayerSpec& layer : spec.layers) layer.score_scale = scale;
  }
  // transformers drops outputs, too, with this probability.
  spec.attention_dropout = spec.residual_dropout = read_dropout(attention, "attn_pdrop", 0);
  // MPT's own code can do more than transformers, which does not read these.
  attention.require("alibi", true);
  attention.require("alibi_bias_max", 8);
  attention.require("attn_type", "multihead_attention");
  for (const char* key : {"prefix_lm", "qk_ln", "attn_uses_sequence_id"}) attention.reject(key);
  attention.collect_unknown_keys({"attn_impl", "dtype", "model_type"});
}

void read(ConfigReader& config, ModelSpec& spec) {
  read_sizes(config, spec, {.hidden = "d_model", .layers = "n_layers", .heads = "n_heads"});
  // Other names of the same, which win in transformers.
  config.require("hidden_size", spec.hidden_size);
  config.require("num_hidden_layers", spec.num_layers);
  config.require("num_attention_heads", spec.num_heads);
  config.require("expansion_ratio", 4);
  spec.intermediate_size = 4 * spec.hidden_size;
  spec.max_positions = config.size("max_seq_len", 2048);
  use_alibi(spec, alibi_slopes(spec.num_heads));
  spec.norm = {.kind = NormKind::kLayer, .eps = config.positive("layer_norm_epsilon", 1e-5)};
  spec.qkv_layout = QkvLayout::kStacked;
  spec.gated_mlp = false;
  spec.activation = Activation::kGelu;
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  const nlohmann::json* const found = config.find("attn_config");
  const nlohmann::json object =
      found != nullptr && found->is_object() ? *found : nlohmann::json::object();
  if (found != nullptr && !found->is_object())
    config.add_error("attn_config", "is {}, expected an object", quoted(*found));
  ConfigReader attention(object, "attn_config.");
  read_attention(attention, spec);
  config.add(attention);
  // MPT's own code can do more than transformers, which does not read these.
  for (const char* key : {"resid_pdrop", "emb_pdrop"}) config.reject(key);
  config.require("no_bias", true);
  config.require("embedding_fraction", 1.0);
  constexpr const char* kNormType = "norm_type";
  if (config.text(kNormType, "layernorm") != "layernorm")
    config.require(kNormType, "low_precision_layernorm");
  for (const char* key : {"init_device", "learned_pos_emb"}) config.find(key);
}

}  // namespace

Family mpt_family() {
  return {.model_type = "mpt",
          .read = read,
          .names = kNames,
          .prefix = "transformer.",
          .lora_targets = kTargets,
          .dropouts = {.residual = true},
          .pads = false};
}

}  // namespace zeroth::model
