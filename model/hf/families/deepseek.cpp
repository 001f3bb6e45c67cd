// DeepSeek V2 and V3: latent attention, and experts after the first layers. MiniCPM3: latent
// attention, and factors of the embedding, the residual stream and the logits.
#include <algorithm>
#include <cmath>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention.latent.q.", "layers.#.self_attn.q_proj."},
    {"layers.#.attention.latent.q_a.", "layers.#.self_attn.q_a_proj."},
    {"layers.#.attention.latent.q_norm.", "layers.#.self_attn.q_a_layernorm."},
    {"layers.#.attention.latent.q_b.", "layers.#.self_attn.q_b_proj."},
    {"layers.#.attention.latent.kv_a.", "layers.#.self_attn.kv_a_proj_with_mqa."},
    {"layers.#.attention.latent.kv_norm.", "layers.#.self_attn.kv_a_layernorm."},
    {"layers.#.attention.latent.kv_b.", "layers.#.self_attn.kv_b_proj."},
};

// The defaults of keys in which DeepSeek's two differ.
struct Version {
  int64_t max_positions, num_experts, shared_experts, dense_layers;
  std::optional<int64_t> top_k;
  int64_t expert_size;
  double scale;
};

// Reads a decoder with latent attention, whose missing keys have the values of `defaults`; its
// v_dim 0 means the hidden size for all heads.
void read_latent(ConfigReader& config, ModelSpec& spec, const LatentSpec& defaults,
                 DecoderKeys keys) {
  LatentSpec latent;
  const bool no_q_rank = config.has("q_lora_rank") && config.find("q_lora_rank") == nullptr;
  latent.q_rank = no_q_rank ? 0 : config.size("q_lora_rank", defaults.q_rank, kMaxWidth);
  latent.kv_rank = config.size("kv_lora_rank", defaults.kv_rank, kMaxWidth);
  latent.nope_dim = config.size("qk_nope_head_dim", defaults.nope_dim, kMaxWidth);
  latent.rope_dim = config.size("qk_rope_head_dim", defaults.rope_dim, kMaxWidth);
  // transformers writes these, which follow from the others.
  for (const char* key : {"head_dim", "qk_head_dim"}) config.find(key);
  keys.rotated_dim = latent.rope_dim;
  read_decoder(config, spec, keys);
  const int64_t share = spec.hidden_size / std::max<int64_t>(spec.num_heads, 1);
  latent.v_dim = config.size("v_head_dim", defaults.v_dim > 0 ? defaults.v_dim : share, kMaxWidth);
  require_width(config, "num_attention_heads",
                spec.num_heads * (latent.nope_dim + std::max(latent.rope_dim, latent.v_dim)));
  spec.latent = latent;
  spec.num_kv_heads = spec.num_heads;
  spec.head_dim = latent.nope_dim + latent.rope_dim;
  spec.rope.rotary_dim = latent.rope_dim;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  double scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  if (spec.rope.mscale_all_dim != 0 && spec.rope.factor > 1) {
    const double mscale = 0.1 * spec.rope.mscale_all_dim * std::log(spec.rope.factor) + 1;
    scale *= mscale * mscale;
  }
  for (LayerSpec& layer : spec.layers) layer.score_scale = scale;
}

void read_attention(ConfigReader& config, ModelSpec& spec, const Version& version) {
  read_latent(config, spec,
              {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128},
              {.max_positions = version.max_positions, .rope = {.interleaved = true}});
}

void read_sparse(ConfigReader& config, ModelSpec& spec, const Version& version) {
  read_experts(config, spec,
               {.count = "n_routed_experts",
                .default_count = version.num_experts,
                .default_top_k = version.top_k,
                .default_size = version.expert_size,
                .has_aux_loss = false});
  spec.experts->shared_intermediate_size =
      config.size("n_shared_experts", version.shared_experts, kMaxExperts) *
      spec.experts->intermediate_size;
  // Of layers that are skipped.
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"}) config.find(key);
  spec.experts->router.in_fp32 = true;
  spec.experts->router.scale = config.number("routed_scaling_factor", version.scale);
  read_dense_layers(config, spec, version.dense_layers);
}

void read_v2(ConfigReader& config, ModelSpec& spec) {
  constexpr Version kVersion = {.max_positions = 2048,
                                .num_experts = 64,
                                .shared_experts = 2,
                                .dense_layers = 0,
                                .top_k = {},
                                .expert_size = 1407,
                                .scale = 1};
  read_attention(config, spec, kVersion);
  spec.mlp_bias = config.flag("mlp_bias", false);
  read_sparse(config, spec, kVersion);
  RouterSpec& router = spec.experts->router;
  router.normalize = router.groups_by_two = false;
  config.find("norm_topk_prob");  // transformers does not read it
  const std::string method = config.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_groups(config, spec, 1, 1);
  } else if (method == "greedy") {
    for (const char* key : {"n_group", "topk_group"}) config.find(key);  // not read either
  } else {
    config.add_error("topk_method", "is \"{}\"; supported are greedy, group_limited_greedy",
                     shortened(method));
  }
}

void read_v3(ConfigReader& config, ModelSpec& spec) {
  constexpr Version kVersion = {.max_positions = 4096,
                                .num_experts = 256,
                                .shared_experts = 1,
                                .dense_layers = 3,
                                .top_k = 8,
                                .expert_size = 2048,
                                .scale = 2.5};
  read_attention(config, spec, kVersion);
  spec.rope.interleaved = config.flag("rope_interleave", true);
  read_sparse(config, spec, kVersion);
  RouterSpec& router = spec.experts->router;
  router.score = RouterScore::kSigmoid;
  router.correction_bias = true;
  router.normalize = config.flag("norm_topk_prob", true);
  read_groups(config, spec, 8, 4);
}

void read_minicpm3(ConfigReader& config, ModelSpec& spec) {
  read_latent(config, spec, {.q_rank = 768, .kv_rank = 256, .nope_dim = 64, .rope_dim = 32},
              {.max_positions = 32768, .norm = {.eps = 1e-5}, .tied = true});
  require_multiple(config, "hidden_size", spec.hidden_size, "num_attention_heads", spec.num_heads);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.embedding_multiplier = config.number("scale_emb", 12);
  spec.rounds_embedding_multiplier = true;
  if (!config.is_null("scale_depth"))
    spec.residual_multiplier =
        config.number("scale_depth", 1.4) / std::sqrt(static_cast<double>(spec.num_layers));
  if (!config.is_null("dim_model_base"))
    spec.logits_multiplier = config.positive("dim_model_base", 256) /
                             static_cast<double>(std::max<int64_t>(spec.hidden_size, 1));
}

}  // namespace

Family deepseek_v2_family() {
  return {.model_type = "deepseek_v2",
          .read = read_v2,
          .names = kNames,
          .stacked = expert_names(),
          .skips_later_layers = true};
}

Family deepseek_v3_family() {
  return {.model_type = "deepseek_v3",
          .read = read_v3,
          .names = kNames,
          .stacked = expert_names(),
          .skips_later_layers = true};
}

Family minicpm3_family() {
  return {.model_type = "minicpm3", .read = read_minicpm3, .names = kNames};
}

}  // namespace zeroth::model
