// DeepSeek V2 and V3: latent attention, and experts after the first layers.
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

// The defaults of keys in which the two differ.
struct Version {
  int64_t max_positions, num_experts, shared_experts, dense_layers;
  std::optional<int64_t> top_k;
  int64_t expert_size;
  double scale;
};

void read_attention(ConfigReader& config, ModelSpec& spec, const Version& version) {
  LatentSpec latent;
  const bool no_q_rank = config.has("q_lora_rank") && config.find("q_lora_rank") == nullptr;
  latent.q_rank = no_q_rank ? 0 : config.size("q_lora_rank", 1536, kMaxWidth);
  latent.kv_rank = config.size("kv_lora_rank", 512, kMaxWidth);
  latent.nope_dim = config.size("qk_nope_head_dim", 128, kMaxWidth);
  latent.rope_dim = config.size("qk_rope_head_dim", 64, kMaxWidth);
  latent.v_dim = config.size("v_head_dim", 128, kMaxWidth);
  // transformers writes these, which follow from the others.
  for (const char* key : {"head_dim", "qk_head_dim"}) config.find(key);
  read_decoder(config, spec,
               {.max_positions = version.max_positions,
                .rotated_dim = latent.rope_dim,
                .rope = {.interleaved = true}});
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

}  // namespace zeroth::model
