// What families with gated delta nets read of their config.json.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "model/hf/families/family.h"
#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_delta_net_test {
namespace {

using nlohmann::json;

// Returns a letter for each layer: A with attention, D with a delta net.
std::string mixers(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers)
    text += layer.mixer == LayerMixer::kAttention ? 'A' : 'D';
  return text;
}

// What Qwen3-Next and 3.5 share.
void check_defaults(const std::string& family) {
  const ModelSpec spec = parse_family(family, {{"num_hidden_layers", 9}});
  CHECK(spec.norm.product_in_fp32);
  CHECK(mixers(spec) == "DDDADDDAD");
  CHECK(spec.max_positions == 32768);
  CHECK(spec.head_dim == 256);
  CHECK(spec.norm.eps == 1e-6);
  CHECK(spec.norm.weight_offset == 1);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.qk_norm_spec.weight_offset == 1);
  CHECK(spec.gated_attention);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.rope.theta == 10000);
  CHECK(spec.rope.rotary_dim == 64);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(spec.attention_dropout == 0);
  CHECK(spec.delta_net->key_heads == 16);
  CHECK(spec.delta_net->value_heads == 32);
  CHECK(spec.delta_net->key_dim == 128);
  CHECK(spec.delta_net->value_dim == 128);
  CHECK(spec.delta_net->kernel == 4);
}

void check_values(const std::string& family) {
  const ModelSpec other = parse_family(family, {{"linear_num_key_heads", 3},
                                                {"linear_num_value_heads", 6},
                                                {"linear_key_head_dim", 7},
                                                {"linear_value_head_dim", 5},
                                                {"linear_conv_kernel_dim", 2},
                                                {"full_attention_interval", 2},
                                                {"num_key_value_heads", 1},
                                                {"head_dim", 16},
                                                {"attention_bias", true},
                                                {"partial_rotary_factor", 0.5},
                                                {"rope_theta", 1e7},
                                                {"attn_output_gate", true},
                                                {"mtp_num_hidden_layers", 1},
                                                {"mtp_use_dedicated_embeddings", false},
                                                {"mamba_ssm_dtype", "float32"},
                                                {"tie_word_embeddings", true}});
  CHECK(other.unknown_keys.empty());
  CHECK(mixers(other) == "DAD");
  CHECK(other.delta_net->key_heads == 3);
  CHECK(other.delta_net->value_heads == 6);
  CHECK(other.delta_net->key_dim == 7);
  CHECK(other.delta_net->value_dim == 5);
  CHECK(other.delta_net->kernel == 2);
  CHECK(other.num_kv_heads == 1);
  CHECK(other.head_dim == 16);
  CHECK(other.qkv_bias);
  CHECK(other.o_bias);
  CHECK(other.rope.rotary_dim == 8);
  CHECK(other.rope.theta == 1e7);
  CHECK(other.tie_word_embeddings);
  // layer_types wins over the interval.
  CHECK(mixers(parse_family(
            family, {{"layer_types", {"full_attention", "linear_attention", "full_attention"}},
                     {"full_attention_interval", 2}})) == "ADA");
  check_names(other,
              {{"layers.1.delta_net.A_log", "model.layers.1.linear_attn.A_log"},
               {"layers.1.delta_net.dt_bias", "model.layers.1.linear_attn.dt_bias"},
               {"layers.1.delta_net.conv.weight", "model.layers.1.linear_attn.conv1d.weight"},
               {"layers.1.delta_net.norm.weight", "model.layers.1.linear_attn.norm.weight"},
               {"layers.1.delta_net.o.weight", "model.layers.1.linear_attn.out_proj.weight"},
               {"layers.1.attention.q_norm.weight", "model.layers.1.self_attn.q_norm.weight"}});
  CHECK(skipped_prefix(family_of(other), other, "mtp.layers.0.mlp.up_proj.weight") == "mtp.");
}

void check_refused(const std::string& family) {
  check_refusals(
      family,
      {{{{"linear_num_value_heads", 24}},
        "linear_num_value_heads is 24, not a multiple of linear_num_key_heads 16"},
       {{{"linear_num_key_heads", 1 << 20}, {"linear_num_value_heads", 1 << 20}},
        "linear_num_key_heads means a width of 134217728"},
       {{{"linear_value_head_dim", 1 << 20}}, "linear_num_value_heads means a width of 33554432"},
       {{{"linear_conv_kernel_dim", 0}}, "linear_conv_kernel_dim is 0"},
       {{{"linear_conv_kernel_dim", 257}}, "linear_conv_kernel_dim is 257"},
       {{{"full_attention_interval", 0}}, "full_attention_interval is 0"},
       {{{"hidden_act", "gelu"}}, "hidden_act is not silu, which a gated delta net needs"},
       {{{"layer_types", {"linear_attention", "full_attention"}}},
        "layer_types does not have one entry for each of the 3 layers"},
       {{{"layer_types", {"linear_attention", "sliding_attention", "full_attention"}}},
        "layer_types has \"sliding_attention\"; supported are full_attention, linear_attention"},
       {{{"attn_output_gate", false}}, "attn_output_gate is false; only true is supported"},
       {{{"sliding_window", 8}}, "sliding_window is 8"},
       {{{"use_sliding_window", true}}, "use_sliding_window is true"}});
}

}  // namespace

TEST_CASE("Qwen3-Next and 3.5 have attention in every fourth layer, with a gate") {
  for (const std::string family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    CAPTURE(family);
    check_defaults(family);
    check_values(family);
    check_refused(family);
  }
}

TEST_CASE("qwen3_next has experts, and fused products that key heads share") {
  const ModelSpec spec = parse_family("qwen3_next", {{"num_hidden_layers", 4}});
  CHECK(spec.num_kv_heads == 2);
  CHECK(spec.delta_net->fused);
  REQUIRE(spec.experts);
  CHECK(spec.experts->num_experts == 512);
  CHECK(spec.experts->top_k == 10);
  CHECK(spec.experts->intermediate_size == 512);
  CHECK(spec.experts->shared_intermediate_size == 512);
  CHECK(spec.experts->shared_gate);
  CHECK(spec.experts->router.normalize);
  CHECK(spec.experts->aux_loss_coef == 0);
  for (const LayerSpec& layer : spec.layers) CHECK(layer.experts);
  const ModelSpec other = parse_family("qwen3_next", {{"num_experts", 8},
                                                      {"num_experts_per_tok", 2},
                                                      {"moe_intermediate_size", 24},
                                                      {"shared_expert_intermediate_size", 40},
                                                      {"norm_topk_prob", false},
                                                      {"output_router_logits", true},
                                                      {"mlp_only_layers", {1}}});
  CHECK(other.experts->num_experts == 8);
  CHECK(other.experts->shared_intermediate_size == 40);
  CHECK_FALSE(other.experts->router.normalize);
  CHECK(other.experts->aux_loss_coef == 0.001);
  CHECK(other.layers[0].experts);
  CHECK_FALSE(other.layers[1].experts);
  check_names(
      spec, {{"layers.1.delta_net.qkvz.weight", "model.layers.1.linear_attn.in_proj_qkvz.weight"},
             {"layers.1.delta_net.ba.weight", "model.layers.1.linear_attn.in_proj_ba.weight"},
             {"layers.1.mlp.shared_gate.weight", "model.layers.1.mlp.shared_expert_gate.weight"}});
  CHECK(stored_tensors(family_of(spec), {"layers.1.mlp.experts.down", {2, 32, 24}})[1].name ==
        "model.layers.1.mlp.experts.1.down_proj.weight");
  check_refusals("qwen3_next",
                 {{{{"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {11, 11, 10}}}}},
                   "mrope_section"}});
}

TEST_CASE("qwen3_5_text has products of its own for z, b and a, and sections of positions") {
  const ModelSpec spec = parse_family("qwen3_5_text", {{"num_hidden_layers", 4}});
  CHECK(spec.num_kv_heads == 4);
  CHECK_FALSE(spec.delta_net->fused);
  CHECK_FALSE(spec.experts);
  check_names(spec,
              {{"layers.1.delta_net.qkv.weight", "model.layers.1.linear_attn.in_proj_qkv.weight"},
               {"layers.1.delta_net.z.weight", "model.layers.1.linear_attn.in_proj_z.weight"},
               {"layers.1.delta_net.b.weight", "model.layers.1.linear_attn.in_proj_b.weight"},
               {"layers.1.delta_net.a.weight", "model.layers.1.linear_attn.in_proj_a.weight"}});
  // All sections have the positions of the text.
  const ModelSpec sections = parse_family("qwen3_5_text", {{"rope_parameters",
                                                            {{"rope_type", "default"},
                                                             {"rope_theta", 1e7},
                                                             {"partial_rotary_factor", 0.25},
                                                             {"mrope_interleaved", true},
                                                             {"mrope_section", {11, 11, 10}}}}});
  CHECK(sections.unknown_keys.empty());
  CHECK(sections.rope.theta == 1e7);
  CHECK(sections.rope.rotary_dim == 64);
  check_refusals("qwen3_5_text", {{{{"mlp_only_layers", {1}}}, "mlp_only_layers is"},
                                  {{{"num_experts", 8}}, "num_experts is 8"}});
}

TEST_CASE("qwen3_5_moe_text has experts in every layer, and no MLP") {
  json config = smallest("qwen3_5_moe_text");
  config.erase("intermediate_size");
  const ModelSpec spec = parse_model_spec(config.dump(), "config.json");
  CHECK(spec.num_kv_heads == 2);
  CHECK_FALSE(spec.delta_net->fused);
  CHECK(spec.experts->num_experts == 256);
  CHECK(spec.experts->top_k == 8);
  CHECK(spec.experts->intermediate_size == 512);
  CHECK(spec.experts->shared_intermediate_size == 512);
  CHECK(spec.experts->shared_gate);
  CHECK(spec.experts->router.normalize);
  for (const LayerSpec& layer : spec.layers) CHECK(layer.experts);
  check_refusals("qwen3_5_moe_text",
                 {{{{"norm_topk_prob", false}}, "norm_topk_prob is false; only true is supported"},
                  {{{"mlp_only_layers", {1}}}, "mlp_only_layers is"},
                  {{{"decoder_sparse_step", 2}}, "decoder_sparse_step is 2; only 1 is supported"}});
}

TEST_CASE("qwen3_5 is a qwen3_5_text beside a vision tower") {
  const json whole = {{"model_type", "qwen3_5"},
                      {"image_token_id", 7},
                      {"text_config", smallest("qwen3_5_text")},
                      {"vision_config", {{"depth", 1}}}};
  CHECK(parse_model_spec(with(whole, {{"model_type", "qwen3_5_moe"},
                                      {"text_config", smallest("qwen3_5_moe_text")}})
                             .dump(),
                         "config.json")
            .family == "qwen3_5_moe_text");
  const ModelSpec spec = parse_model_spec(whole.dump(), "config.json");
  CHECK(spec.family == "qwen3_5_text");
  CHECK(spec.multimodal->model_type == "qwen3_5");
  CHECK(spec.unknown_keys.empty());
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(parse_model_spec(with(whole, {{"tie_word_embeddings", true}}).dump(), "config.json")
            .tie_word_embeddings);
  check_names(spec, {{"layers.1.delta_net.qkv.weight",
                      "model.language_model.layers.1.linear_attn.in_proj_qkv.weight"}});
}

}  // namespace zeroth::model::families_delta_net_test
