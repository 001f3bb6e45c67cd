// Falcon 7B: attention and MLP side by side after one LayerNorm, and one key and value head.
// Falcon 40B: two norms, and q, k and v of each group of heads together. Falcon RW: one after the
// other, with ALiBi in place of rotary embeddings.
#include <cmath>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

// The first two are of models with a norm for each of attention and MLP, the last two of the
// others.
constexpr NamePair kAllNames[] = {
    {"layers.#.attention_norm.", "h.#.ln_attn."},
    {"layers.#.mlp_norm.", "h.#.ln_mlp."},
    {"embedding.weight", "word_embeddings.weight"},
    {"layers.#.attention.qkv.", "h.#.self_attention.query_key_value."},
    {"layers.#.attention.o.", "h.#.self_attention.dense."},
    {"layers.#.mlp.up.", "h.#.mlp.dense_h_to_4h."},
    {"layers.#.mlp.down.", "h.#.mlp.dense_4h_to_h."},
    {"head.norm.", "ln_f."},
    {"layers.#.attention_norm.", "h.#.input_layernorm."},
    {"layers.#.mlp_norm.", "h.#.post_attention_layernorm."},
};
constexpr std::span kTwoNormNames = std::span(kAllNames).first<std::size(kAllNames) - 2>();
constexpr std::span kNames = std::span(kAllNames).last<std::size(kAllNames) - 2>();

constexpr std::string_view kTargets[] = {"query_key_value"};

double rounded_to_bf16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

// Returns the slopes as transformers has them: rounded, and on scores that are not scaled yet.
std::vector<double> scaled_slopes(const ModelSpec& spec) {
  std::vector<double> slopes = alibi_slopes(spec.num_heads);
  for (double& slope : slopes)
    slope = rounded_to_bf16(slope) / std::sqrt(static_cast<double>(spec.head_dim));
  return slopes;
}

void read(ConfigReader& config, ModelSpec& spec) {
  read_sizes(config, spec);
  config.require("n_embed", spec.hidden_size);  // older name, which wins in transformers
  spec.intermediate_size = config.size("ffn_hidden_size", 4 * spec.hidden_size, 16 * kMaxWidth);
  const bool grouped = config.flag("new_decoder_architecture", false);
  const bool one_kv_head = config.flag("multi_query", true);
  const int64_t kv_heads = config.size("num_kv_heads", spec.num_heads, kMaxWidth);
  spec.num_kv_heads = grouped ? kv_heads : one_kv_head ? 1 : spec.num_heads;
  require_multiple(config, "num_attention_heads", spec.num_heads, "num_kv_heads",
                   spec.num_kv_heads);
  spec.qkv_layout = !grouped && one_kv_head ? QkvLayout::kStacked : QkvLayout::kGrouped;
  const bool parallel = config.flag("parallel_attn", true);
  const double norms = config.number("num_ln_in_parallel_attn", grouped ? 2 : 1);
  if (grouped && norms == 2) {
    spec.parallel_residual = ParallelResidual::kTwoNorms;
  } else if (grouped || parallel) {
    spec.parallel_residual = ParallelResidual::kOneNorm;
  }
  if (norms != 1 && (norms != 2 || !grouped))
    config.add_error("num_ln_in_parallel_attn",
                     "is {}; supported are 1, and 2 with new_decoder_architecture", norms);
  spec.max_positions = config.size("max_position_embeddings", 2048);
  spec.rope = read_rope(config, spec.head_dim, spec.max_positions);
  if (config.flag("alibi", false)) use_alibi(spec, scaled_slopes(spec));
  spec.norm = {
      .kind = NormKind::kLayer, .eps = config.positive("layer_norm_epsilon", 1e-5), .bias = true};
  spec.gated_mlp = false;
  spec.activation = read_activation(config, "activation", "gelu");
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.flag("bias", false);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  config.reject("attention_dropout");  // transformers applies it to some models, in other places
}

const Family* variant(const ModelSpec& spec);

Family family_with(std::span<const NamePair> names) {
  return {.model_type = "falcon",
          .read = read,
          .variant = variant,
          .names = names,
          .prefix = "transformer.",
          .lora_targets = kTargets,
          .pads = false};
}

const Family* variant(const ModelSpec& spec) {
  static const Family kOneNorm = family_with(kNames), kTwoNorms = family_with(kTwoNormNames);
  return spec.parallel_residual == ParallelResidual::kTwoNorms ? &kTwoNorms : &kOneNorm;
}

}  // namespace

Family falcon_family() {
  return family_with(kNames);
}

}  // namespace zeroth::model
