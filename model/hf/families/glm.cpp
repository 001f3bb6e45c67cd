// GLM-4 9B: half of each head rotates, in interleaved pairs; gate and up are one product. GLM-4
// 0414 normalizes the outputs of attention and MLP, too.
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

}  // namespace

Family glm_family() {
  return {.model_type = "glm", .read = read_glm, .names = kGlmNames, .padding_token = 151329};
}

Family glm4_family() {
  return {.model_type = "glm4", .read = read_glm4, .names = kGlmNames, .padding_token = 151329};
}

}  // namespace zeroth::model
