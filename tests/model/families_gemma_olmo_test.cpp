// What Gemma and OLMo read of their config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_gemma_olmo_test {
namespace {

using nlohmann::json;

const json kNoInputs = {{"vocab_size_per_layer_input", 64}, {"hidden_size_per_layer_input", 0}};

}  // namespace

TEST_CASE("gemma has weights around 0, a scaled embedding, and two keys of its activation") {
  const json heads = {{"num_attention_heads", 16}};
  const ModelSpec spec = parse_family("gemma", heads);
  CHECK(spec.num_kv_heads == 16);
  CHECK(spec.head_dim == 256);
  CHECK(spec.max_positions == 8192);
  CHECK(spec.norm.kind == NormKind::kRms);
  CHECK(spec.norm.eps == 1e-6);
  CHECK(spec.norm.weight_offset == 1);
  CHECK(spec.norm.product_in_fp32);
  CHECK(spec.norm_placement == NormPlacement::kPre);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK(spec.embedding_multiplier == std::sqrt(32.0));
  CHECK(spec.rounds_embedding_multiplier);
  CHECK(spec.score_scale(0) == 0.0625);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  CHECK(windows(spec) == Windows{0, 0, 0});
  CHECK(parse_family("gemma", with(heads, {{"hidden_act", "gelu"}})).activation ==
        Activation::kGelu);
  CHECK(parse_family("gemma", with(heads, {{"hidden_act", "gelu"}, {"hidden_activation", nullptr}}))
            .activation == Activation::kGelu);
  check_names(spec, {{"layers.1.mlp_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
                     {"embedding.weight", "model.embed_tokens.weight"}});
  check_refusals(
      "gemma", {{with(heads, {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}}),
                 "hidden_activation is \"gelu_pytorch_tanh\", but hidden_act is \"gelu\": keep"},
                {with(heads, {{"use_bidirectional_attention", true}}),
                 "use_bidirectional_attention is true"},
                {with(heads, {{"attn_logit_softcapping", 50.0}}), "attn_logit_softcapping is 50"},
                {with(heads, {{"sliding_window", 8}}), "sliding_window is 8"}});
}

TEST_CASE("gemma2 has caps, sandwich norms, and a window in every second layer") {
  const ModelSpec spec = parse_family("gemma2");
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.head_dim == 256);
  CHECK(spec.max_positions == 8192);
  CHECK(spec.norm.weight_offset == 1);
  CHECK(spec.norm.product_in_fp32);
  CHECK(spec.norm_placement == NormPlacement::kSandwich);
  CHECK(windows(spec) == Windows{4096, 0, 4096});
  CHECK(ropes(spec) == "GGG");
  CHECK(spec.score_softcap == 50);
  CHECK(spec.logits_softcap == 30);
  CHECK(spec.score_scale(1) == 0.0625);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK(spec.qk_norm == QkNorm::kNone);
  CHECK(spec.rope.theta == 10000);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  const ModelSpec other = parse_family("gemma2", {{"attn_logit_softcapping", nullptr},
                                                  {"final_logit_softcapping", 2.5},
                                                  {"query_pre_attn_scalar", 64},
                                                  {"head_dim", 8},
                                                  {"layer_types", kTypes},
                                                  {"sliding_window", 7},
                                                  {"hidden_act", "gelu_pytorch_tanh"}});
  CHECK(other.score_softcap == 0);
  CHECK(other.logits_softcap == 2.5);
  CHECK(other.score_scale(2) == 0.125);
  CHECK(windows(other) == Windows{0, 7, 0});
  CHECK(other.unknown_keys.empty());
  check_names(
      spec,
      {{"layers.1.attention_norm.weight", "model.layers.1.input_layernorm.weight"},
       {"layers.1.attention_post_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
       {"layers.1.mlp_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight"},
       {"layers.1.mlp_post_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"}});
  check_refusals("gemma2",
                 {{{{"hidden_act", "gelu"}}, "hidden_act is \"gelu\", but hidden_activation is"},
                  {{{"attn_logit_softcapping", 0}}, "attn_logit_softcapping is 0"},
                  {{{"use_bidirectional_attention", true}}, "use_bidirectional"}});
}

TEST_CASE("gemma3_text has two rotary embeddings, and norms of q and k") {
  const ModelSpec spec = parse_family("gemma3_text", {{"num_hidden_layers", 7}});
  CHECK(windows(spec) == Windows{4096, 4096, 4096, 4096, 4096, 0, 4096});
  CHECK(ropes(spec) == "LLLLLGL");
  CHECK(spec.rope.theta == 1000000);
  CHECK(spec.local_rope.theta == 10000);
  CHECK(spec.local_rope.scaling == RopeScaling::kNone);
  CHECK(spec.head_dim == 256);
  CHECK(spec.max_positions == 131072);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.qk_norm_spec.weight_offset == 1);
  CHECK(spec.score_softcap == 0);
  CHECK(spec.logits_softcap == 0);
  CHECK(spec.padding_token == 0);
  const json old = {{"sliding_window_pattern", 2},
                    {"rope_theta", 500.0},
                    {"rope_local_base_freq", 300.0},
                    {"final_logit_softcapping", 3.0},
                    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const ModelSpec other = parse_family("gemma3_text", old);
  CHECK(ropes(other) == "LGL");
  CHECK(other.rope.theta == 500);
  CHECK(other.rope.scaling == RopeScaling::kLinear);
  CHECK(other.rope.factor == 8);
  CHECK(other.local_rope.theta == 300);
  CHECK(other.local_rope.scaling == RopeScaling::kNone);
  CHECK(other.logits_softcap == 3);
  const json full = {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 200.0}};
  const json local = {{"rope_theta", 100.0}};
  const json both = {{"full_attention", full}, {"sliding_attention", local}};
  const ModelSpec written =
      parse_family("gemma3_text", {{"rope_parameters", both}, {"layer_types", kTypes}});
  CHECK(ropes(written) == "GLG");
  CHECK(written.rope.scaling == RopeScaling::kYarn);
  CHECK(written.rope.theta == 200);
  CHECK(written.local_rope.theta == 100);
  // The old key adds to the new one's object, as in transformers.
  const ModelSpec added = parse_family(
      "gemma3_text",
      {{"rope_parameters", both}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  CHECK(added.rope.scaling == RopeScaling::kLinear);
  CHECK(added.rope.factor == 2);
  CHECK(added.rope.theta == 200);
  const json untruncated = {{"full_attention", with(full, {{"truncate", false}})},
                            {"sliding_attention", local}};
  check_refusals("gemma3_text",
                 {{{{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true"},
                  {{{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping is 50"},
                  {{{"rope_parameters", {{"full_attention", full}}}},
                   "rope_parameters has no sliding_attention, one of this model's types of layers"},
                  {{{"rope_parameters", full}}, "rope_parameters has no full_attention"},
                  {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
                   "rope_scaling has the key type, which transformers does not read"},
                  {{{"rope_parameters", untruncated}},
                   "rope_parameters.full_attention.truncate is false; only true is supported"}});
}

TEST_CASE("gemma4_text has heads of two sizes, and inputs of each layer") {
  const json small = {{"vocab_size_per_layer_input", 64}};
  const ModelSpec spec = parse_family("gemma4_text", with(small, {{"num_hidden_layers", 7}}));
  CHECK(windows(spec) == Windows{512, 512, 512, 512, 512, 0, 0});
  CHECK(ropes(spec) == "LLLLLGG");
  CHECK(spec.layer_head_dim(0) == 256);
  CHECK(spec.layer_head_dim(5) == 512);
  CHECK(spec.rope.head_dim == 512);
  CHECK(spec.local_rope.head_dim == 256);
  CHECK(spec.layer_kv_heads(5) == 4);
  CHECK(spec.rope.scaling == RopeScaling::kProportional);
  CHECK(spec.rope.rotated_share == 0.25);
  CHECK(spec.rope.theta == 1000000);
  CHECK(spec.rope.rotary_dim == 0);
  CHECK(spec.local_rope.scaling == RopeScaling::kNone);
  CHECK(spec.local_rope.theta == 10000);
  CHECK(spec.max_positions == 131072);
  CHECK(spec.norm.weight_offset == 0);
  CHECK(spec.norm.product_in_fp32);
  CHECK(spec.norm_placement == NormPlacement::kSandwich);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.v_norm);
  CHECK(spec.layer_scalar);
  CHECK(spec.score_scale(0) == 1);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK(spec.embedding_multiplier == std::sqrt(32.0));
  CHECK(spec.rounds_embedding_multiplier);
  CHECK(spec.logits_softcap == 0);
  CHECK(spec.padding_token == 0);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.per_layer_input->size == 256);
  CHECK(spec.per_layer_input->vocab_size == 64);
  CHECK_FALSE(spec.experts);
  CHECK(input_sizes(spec, 0) == std::vector<int64_t>{32, 256, 6 * 256});
  CHECK(input_sizes(spec, 6) == std::vector<int64_t>{32, 256});
  CHECK(input_sizes(spec, 7) == std::vector<int64_t>{32});
  CHECK_FALSE(parse_family("gemma4_text", {{"hidden_size_per_layer_input", 0}}).per_layer_input);
  CHECK_FALSE(
      parse_family("gemma4_text", {{"hidden_size_per_layer_input", nullptr}}).per_layer_input);
  check_names(
      spec, {{"embedding.per_layer.weight", "model.embed_tokens_per_layer.weight"},
             {"embedding.per_layer.projection.weight", "model.per_layer_model_projection.weight"},
             {"embedding.per_layer.norm.weight", "model.per_layer_projection_norm.weight"},
             {"layers.1.mlp_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight"},
             {"layers.1.per_layer_gate.weight", "model.layers.1.per_layer_input_gate.weight"},
             {"layers.1.per_layer_projection.weight", "model.layers.1.per_layer_projection.weight"},
             {"layers.1.per_layer_norm.weight", "model.layers.1.post_per_layer_input_norm.weight"},
             {"layers.1.layer_scalar", "model.layers.1.layer_scalar"}});
}

TEST_CASE("layers of gemma4_text have sizes of their own by per_layer_config") {
  const json small = {{"vocab_size_per_layer_input", 64}};
  const json own = {{"2", {{"head_dim", 24}, {"num_key_value_heads", 2}}}};
  const ModelSpec written =
      parse_family("gemma4_text", with(small, {{"per_layer_config", own}, {"head_dim", 16}}));
  CHECK(written.layer_head_dim(1) == 16);
  CHECK(written.layer_head_dim(2) == 24);
  CHECK(written.layer_kv_heads(2) == 2);
  CHECK(written.layer_kv_heads(1) == 4);
  CHECK(written.unknown_keys.empty());
  // transformers writes the numbers of layers in one width.
  const json padded = {{"05", {{"head_dim", 24}}}, {"11", {{"head_dim", 24}}}};
  const ModelSpec twelve =
      parse_family("gemma4_text", with(small, {{"num_hidden_layers", 12},
                                               {"per_layer_config", padded},
                                               {"global_head_dim", 32},
                                               {"num_global_key_value_heads", nullptr}}));
  CHECK(twelve.layer_head_dim(5) == 24);
  CHECK(twelve.layer_head_dim(11) == 24);
  CHECK(twelve.layer_head_dim(10) == 256);
  CHECK(twelve.unknown_keys.empty());
}

TEST_CASE("the last layers of gemma4_text use keys and values of earlier ones") {
  const json types = {"sliding_attention", "full_attention", "sliding_attention",
                      "sliding_attention", "sliding_attention"};
  const json five = with(kNoInputs, {{"num_hidden_layers", 5}, {"layer_types", types}});
  const ModelSpec shared = parse_family(
      "gemma4_text", with(five, {{"num_kv_shared_layers", 2}, {"use_double_wide_mlp", true}}));
  CHECK(windows(shared) == Windows{512, 0, 512, 512, 0});  // the last one whatever is written
  CHECK_FALSE(shared.layer(2).kv_layer);
  CHECK(shared.layer(3).kv_layer == 2);
  CHECK(shared.layer(4).kv_layer == 1);
  CHECK(shared.mlp_size(2) == 48);
  CHECK(shared.mlp_size(3) == 96);
  CHECK(carried_states(shared, 1).kv_layers.empty());
  CHECK(carried_states(shared, 2).kv_layers == std::vector<int64_t>{1});
  CHECK(carried_states(shared, 3).kv_layers == std::vector<int64_t>{2, 1});
  CHECK(carried_states(shared, 4).kv_layers == std::vector<int64_t>{1});
  CHECK(carried_states(shared, 5).kv_layers.empty());
  CHECK(input_sizes(shared, 3) == std::vector<int64_t>{32, 2 * 4 * 256, 2 * 4 * 512});
  CHECK(input_sizes(shared, 3, /*ranks=*/8) == std::vector<int64_t>{32, 2 * 8 * 256, 2 * 8 * 512});
  const auto layers = [](const json& value) { return json{{"per_layer_config", value}}; };
  const json factors(128, 1.0), local = {{"rope_theta", 100.0}};
  const json longrope = {{"full_attention",
                          {{"rope_type", "longrope"},
                           {"rope_theta", 100.0},
                           {"original_max_position_embeddings", 64},
                           {"short_factor", factors},
                           {"long_factor", factors}}},
                         {"sliding_attention", local}};
  check_refusals(
      "gemma4_text",
      {{with(five, {{"num_kv_shared_layers", 5}}), "num_kv_shared_layers is 5, expected a whole"},
       {with(five, {{"num_kv_shared_layers", 4}}), "no earlier layer is of the type of layer 1"},
       {layers({{"3", json::object()}}), "per_layer_config has \"3\", expected one object"},
       {layers({{"2", json::object()}, {"02", json::object()}}), "per_layer_config has \"2\""},
       {layers({{"2x", json::object()}}), "per_layer_config has \"2x\", expected one object"},
       {with(layers({{"2", {{"head_dim", 24}}}}), {{"rope_parameters", longrope}}),
        "rope_parameters has longrope for heads of 24 dimensions beside 256"},
       {{{"rope_parameters", {{"full_attention", nullptr}}}},
        "rope_parameters has no full_attention"},
       {{{"rope_parameters", json::object()}}, "rope_parameters has no full_attention"},
       {with(kNoInputs, {{"enable_moe_block", true}, {"hidden_activation", "gelu"}}),
        "hidden_activation is neither silu nor"},
       {layers({{"2", {{"intermediate_size", 8}}}}),
        "per_layer_config.2.intermediate_size is not supported for a single layer"},
       {layers({{"1", {{"head_dim", 24}}}}), "gives layers 0 and 1, which are of one type"},
       {layers({{"2", {{"head_dim", 25}}}}), "head_dim is 25, but rotary embeddings need"},
       {layers({{"2", {{"num_key_value_heads", 3}}}}), "num_attention_heads is 4, not a multiple"},
       {{{"vocab_size_per_layer_input", 63}}, "is 63, less than the vocab_size of 64"},
       {{{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention is \"all\""},
       {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}, "rope_scaling is"},
       {{{"sliding_window", nullptr}}, "sliding_window is null"}});
}

TEST_CASE("gemma4_text may have experts beside the MLP, and keys that are values") {
  const json sparse = with(kNoInputs, {{"enable_moe_block", true},
                                       {"num_experts", 8},
                                       {"top_k_experts", 2},
                                       {"moe_intermediate_size", 12},
                                       {"attention_k_eq_v", true},
                                       {"num_global_key_value_heads", 2}});
  const ModelSpec spec = parse_family("gemma4_text", sparse);
  CHECK(spec.experts->num_experts == 8);
  CHECK(spec.experts->top_k == 2);
  CHECK(spec.experts->beside_mlp);
  CHECK(spec.experts->router.has_scales);
  CHECK(spec.experts->router.normalize);
  CHECK(spec.layer(0).experts);
  CHECK(spec.layer(2).k_is_v);
  CHECK_FALSE(spec.layer(1).k_is_v);
  CHECK(spec.layer_kv_heads(2) == 2);
  CHECK(spec.layer_kv_heads(1) == 4);
  check_names(
      spec,
      {{"layers.1.experts.router.proj.weight", "model.layers.1.router.proj.weight"},
       {"layers.1.experts.router.scale", "model.layers.1.router.scale"},
       {"layers.1.experts.router.per_expert_scale", "model.layers.1.router.per_expert_scale"},
       {"layers.1.experts.experts.gate_up", "model.layers.1.experts.gate_up_proj"},
       {"layers.1.experts.experts.down", "model.layers.1.experts.down_proj"},
       {"layers.1.mlp.up.weight", "model.layers.1.mlp.up_proj.weight"},
       {"layers.1.mlp_branch_norm.weight", "model.layers.1.post_feedforward_layernorm_1.weight"},
       {"layers.1.experts_norm.weight", "model.layers.1.pre_feedforward_layernorm_2.weight"},
       {"layers.1.experts_post_norm.weight",
        "model.layers.1.post_feedforward_layernorm_2.weight"}});
  check_refusals("gemma4_text",
                 {{{{"enable_moe_block", true}}, "moe_intermediate_size"},
                  {with(sparse, {{"output_router_logits", true}}), "no load balancing loss"}});
}

TEST_CASE("olmo has LayerNorm without weights, and clamps q, k and v") {
  const ModelSpec spec = parse_family("olmo");
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK_FALSE(spec.norm.weight);
  CHECK_FALSE(spec.norm.bias);
  CHECK_FALSE(spec.clip_qkv);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 1);
  CHECK(parse_family("olmo", {{"rms_norm_eps", 1e-6}}).norm.eps == 1e-5);
  CHECK(parse_family("olmo", {{"clip_qkv", 8.0}}).clip_qkv == 8);
  CHECK(parse_family("olmo", {{"attention_bias", true}}).o_bias);
  check_refusals("olmo", {{{{"clip_qkv", -1.0}}, "clip_qkv is -1, expected more than 0"}});
}

TEST_CASE("olmo2 and olmo3 normalize outputs, and q and k over all heads") {
  for (const char* family : {"olmo2", "olmo3"}) {
    const ModelSpec spec = parse_family(family);
    CHECK(spec.norm.product_in_fp32);
    CHECK(spec.qk_norm_spec.product_in_fp32);
    CHECK(spec.num_kv_heads == 4);
    CHECK(spec.max_positions == 2048);
    CHECK(spec.norm.kind == NormKind::kRms);
    CHECK(spec.norm.eps == 1e-5);
    CHECK(spec.norm_placement == NormPlacement::kPost);
    CHECK(spec.qk_norm == QkNorm::kAllHeads);
    CHECK_FALSE(spec.qkv_bias);
    CHECK_FALSE(spec.tie_word_embeddings);
    CHECK(spec.padding_token == 1);
    CHECK(parse_family(family, {{"attention_bias", true}}).o_bias);
    check_names(
        spec,
        {{"layers.1.attention_post_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
         {"layers.1.attention.q_norm.weight", "model.layers.1.self_attn.q_norm.weight"}});
  }
  CHECK(parse_family("olmo2").rope.theta == 10000);
  check_refusals("olmo2", {{{{"sliding_window", 8}}, "sliding_window is 8"},
                           {{{"clip_qkv", 8.0}}, "clip_qkv is 8"}});
}

TEST_CASE("olmo3 has a window in three of four layers, whose theta is fixed") {
  const ModelSpec spec = parse_family("olmo3", kFour);
  CHECK(windows(spec) == Windows{4096, 4096, 4096, 0});
  CHECK(ropes(spec) == "LLLG");
  CHECK(spec.rope.theta == 500000);
  CHECK(spec.local_rope.theta == 500000);
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 32}};
  const ModelSpec other = parse_family("olmo3", {{"rope_theta", 300.0},
                                                 {"rope_scaling", yarn},
                                                 {"layer_types", kTypes},
                                                 {"sliding_window", 7}});
  CHECK(windows(other) == Windows{0, 7, 0});
  CHECK(other.rope.theta == 300);
  CHECK(other.rope.scaling == RopeScaling::kYarn);
  CHECK(other.local_rope.theta == 500000);
  CHECK(other.local_rope.scaling == RopeScaling::kNone);
  const json both = {{"full_attention", {{"rope_theta", 200.0}}},
                     {"sliding_attention", {{"rope_theta", 100.0}}}};
  CHECK(parse_family("olmo3", {{"rope_parameters", both}}).local_rope.theta == 100);
  check_refusals("olmo3", {{{{"rope_parameters", yarn}}, "rope_parameters has no full_attention"}});
}

}  // namespace zeroth::model::families_gemma_olmo_test
