// OLMo 1: Llama with LayerNorm without weights. OLMo 2 and 3 normalize the outputs of attention and
// MLP in place of their inputs, and q and k over all heads; OLMo 3 has a window in three of four
// layers.
#include <nlohmann/json.hpp>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read_olmo1(ConfigReader& config, ModelSpec& spec) {
  read_decoder(
      config, spec,
      {.max_positions = 2048, .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .weight = false}});
  spec.norm.eps = 1e-5;  // whatever a key says
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  if (config.find("clip_qkv") != nullptr) spec.clip_qkv = config.positive("clip_qkv");
}

void read_post_norm(ConfigReader& config, ModelSpec& spec, const DecoderKeys& keys) {
  read_decoder(config, spec, keys);
  spec.norm_placement = NormPlacement::kPost;
  spec.qk_norm = QkNorm::kAllHeads;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
}

void read_olmo2(ConfigReader& config, ModelSpec& spec) {
  read_post_norm(config, spec,
                 {.max_positions = 2048, .norm = {.eps = 1e-5, .product_in_fp32 = true}});
}

void read_olmo3(ConfigReader& config, ModelSpec& spec) {
  read_post_norm(
      config, spec,
      {.max_positions = 2048,
       .norm = {.eps = 1e-5, .product_in_fp32 = true},
       .rope = {.theta = 500000, .layer_type = "full_attention"},
       // transformers 5.17 takes rope_theta for the layers without a window alone.
       .local_rope =
           RopeKeys{.theta = 500000, .theta_key = nullptr, .layer_type = "sliding_attention"},
       .window = {.allowed = true, .size = 4096, .has_layer_types = true, .full_every = 4}});
}

void read_olmoe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = 4096, .norm = {.eps = 1e-5}});
  spec.qk_norm = QkNorm::kAllHeads;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  if (config.find("clip_qkv") != nullptr) spec.clip_qkv = config.positive("clip_qkv");
  read_experts(config, spec,
               {.size = "intermediate_size",
                .default_count = 64,
                .default_top_k = 8,
                .aux_loss_coef = 0.01});
  spec.experts->router.normalize = config.flag("norm_topk_prob", false);
}

}  // namespace

Family olmo_family() {
  return {.model_type = "olmo", .read = read_olmo1, .padding_token = 1};
}

Family olmoe_family() {
  return {.model_type = "olmoe", .read = read_olmoe, .stacked = expert_names(), .padding_token = 1};
}

Family olmo2_family() {
  return {
      .model_type = "olmo2", .read = read_olmo2, .names = post_norm_names(), .padding_token = 1};
}

Family olmo3_family() {
  return {
      .model_type = "olmo3", .read = read_olmo3, .names = post_norm_names(), .padding_token = 1};
}

}  // namespace zeroth::model
