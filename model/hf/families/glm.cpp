// GLM-4 9B: half of each head rotates, in interleaved pairs; gate and up are one product. GLM-4
// 0414 normalizes the outputs of attention and MLP, too. GLM-4.5 to 4.7 are mixtures of experts.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kGlmNames[] = {
    {"layers.#.attention_post_norm.", "layers.#.post_self_attn_layernorm."},
    {"layers.#.mlp.gate_up.", "layers.#.mlp.gate_up_proj."},
    {"layers.#.mlp_post_norm.", "layers.#.post_mlp_layernorm."},
};

void read_glm(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 2,
                .head_dim = 128,
                .norm = {.eps = 1.5625e-7},
                .rope = {.is_partial = true, .partial_factor = 0.5, .interleaved = true}});
  spec.qkv_bias = config.flag("attention_bias", true);
  spec.fused_gate_up = true;
}

void read_glm4(ConfigReader& config, ModelSpec& spec) {
  read_glm(config, spec);
  spec.norm_placement = NormPlacement::kSandwich;
}

void read_glm4_moe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 8,
                .norm = {.eps = 1e-5},
                .rope = {.is_partial = true, .partial_factor = 0.5}});
  spec.qkv_bias = config.flag("attention_bias", false);
  if (config.flag("use_qk_norm", false)) spec.qk_norm = QkNorm::kPerHead;
  read_experts(config, spec,
               {.count = "n_routed_experts",
                .default_count = 128,
                .default_top_k = 8,
                .default_size = 1408,
                .has_aux_loss = false});
  RouterSpec& router = spec.experts->router;
  router = {.score = RouterScore::kSigmoid, .correction_bias = true, .in_fp32 = true};
  router.normalize = config.flag("norm_topk_prob", true);
  router.scale = config.number("routed_scaling_factor", 1);
  read_groups(config, spec, 1, 1);
  spec.experts->shared_intermediate_size =
      config.size("n_shared_experts", 1, kMaxExperts) * spec.experts->intermediate_size;
  // Of layers that are skipped.
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"}) config.find(key);
  read_dense_layers(config, spec, 1);
}

}  // namespace

Family glm_family() {
  return {.model_type = "glm", .read = read_glm, .names = kGlmNames, .padding_token = 151329};
}

Family glm4_family() {
  return {.model_type = "glm4", .read = read_glm4, .names = kGlmNames, .padding_token = 151329};
}

Family glm4_moe_family() {
  return {.model_type = "glm4_moe",
          .read = read_glm4_moe,
          .stacked = expert_names(),
          .skips_later_layers = true};
}

}  // namespace zeroth::model
