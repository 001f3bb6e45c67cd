// What the newer families with a gated MLP read of their config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_gated_test {
namespace {

using nlohmann::json;

}  // namespace

TEST_CASE("cohere has one LayerNorm without bias, and a factor of the logits") {
  const ModelSpec spec = parse_family("cohere");
  CHECK(spec.max_positions == 8192);
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK_FALSE(spec.norm.bias);
  CHECK(spec.parallel_residual == ParallelResidual::kOneNorm);
  CHECK(spec.qk_norm == QkNorm::kNone);
  CHECK(spec.activation == Activation::kSilu);
  CHECK(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.rope.theta == 500000);
  CHECK(spec.rope.interleaved);
  CHECK(spec.logits_multiplier == 0.0625);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  const ModelSpec other = parse_family("cohere", {{"use_qk_norm", true},
                                                  {"layer_norm_eps", 1e-6},
                                                  {"logit_scale", 0.25},
                                                  {"attention_bias", true},
                                                  {"rope_theta", 8e6}});
  CHECK(other.qk_norm == QkNorm::kPerHeadOwnWeight);
  CHECK(other.qk_norm_spec.kind == NormKind::kLayer);
  CHECK_FALSE(other.qk_norm_spec.bias);
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.logits_multiplier == 0.25);
  CHECK(other.qkv_bias);
  CHECK(other.o_bias);
  CHECK(other.rope.theta == 8e6);
  check_names(other,
              {{"layers.1.attention_norm.weight", "model.layers.1.input_layernorm.weight"},
               {"layers.1.attention.q_norm.weight", "model.layers.1.self_attn.q_norm.weight"},
               {"layers.1.mlp.gate.weight", "model.layers.1.mlp.gate_proj.weight"}});
  check_refusals("cohere", {{{{"sliding_window", 8}}, "sliding_window is 8"},
                            {{{"qk_layernorm", true}}, "qk_layernorm is true"},
                            {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"}});
}

TEST_CASE("cohere2 has rotary embeddings in the layers with a window alone") {
  const ModelSpec spec = parse_family("cohere2", kFour);
  CHECK(windows(spec) == Windows{4096, 4096, 4096, 0});
  CHECK(ropes(spec) == "GGG-");
  CHECK(spec.rope.theta == 10000);
  CHECK(spec.rope.interleaved);
  CHECK(spec.max_positions == 8192);
  CHECK_FALSE(spec.norm.bias);
  CHECK(spec.parallel_residual == ParallelResidual::kOneNorm);
  CHECK(spec.logits_multiplier == 0.0625);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  const ModelSpec other =
      parse_family("cohere2", {{"sliding_window_pattern", 2}, {"sliding_window", 7}});
  CHECK(windows(other) == Windows{7, 0, 7});
  CHECK(ropes(other) == "G-G");
  CHECK(ropes(parse_family("cohere2", {{"layer_types", kTypes}})) == "-G-");
  // Keys of Cohere's own code, which transformers does not read.
  const ModelSpec original = parse_family("cohere2", {{"use_parallel_block", true},
                                                      {"use_gated_activation", true},
                                                      {"use_embedding_sharing", true},
                                                      {"use_parallel_embedding", false},
                                                      {"position_embedding_type", "rope_gptj"},
                                                      {"rotary_pct", 1.0}});
  CHECK(original.unknown_keys.empty());
  check_refusals("cohere2",
                 {{{{"use_qk_norm", true}}, "use_qk_norm is true"},
                  {{{"use_parallel_block", false}}, "use_parallel_block is false; only true"},
                  {{{"use_gated_activation", false}}, "use_gated_activation is false"},
                  {{{"position_embedding_type", "rope_neox"}}, "position_embedding_type is"},
                  {{{"rotary_pct", 0.5}}, "rotary_pct is 0.5; only 1.0 is supported"},
                  {{{"layer_types", {"full_attention"}}}, "layer_types does not have one entry"}});
}

TEST_CASE("exaone4 normalizes outputs, and has rotary embeddings in windowed layers alone") {
  const json heads = {{"num_hidden_layers", 4}, {"num_key_value_heads", 4}};
  const ModelSpec spec = parse_family("exaone4", heads);
  CHECK(windows(spec) == Windows{4096, 4096, 4096, 0});
  CHECK(ropes(spec) == "GGG-");
  CHECK(spec.norm_placement == NormPlacement::kPost);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.padding_token == -1);
  const json wide = {{"num_attention_heads", 32}, {"hidden_size", 256}};
  CHECK(parse_family("exaone4", wide).num_kv_heads == 32);
  // Without windows every layer has rotary embeddings, whatever the pattern says.
  const ModelSpec full = parse_family(
      "exaone4", with(heads, {{"sliding_window", nullptr}, {"sliding_window_pattern", "LLLG"}}));
  CHECK(windows(full) == Windows{0, 0, 0, 0});
  CHECK(ropes(full) == "GGGG");
  // The pattern of EXAONE 4.0 32B, which has layer_types, too.
  const json types = {"full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  const ModelSpec typed = parse_family(
      "exaone4", with(heads, {{"layer_types", types}, {"sliding_window_pattern", "LLLG"}}));
  CHECK(windows(typed) == Windows{0, 4096, 0, 4096});
  CHECK(ropes(typed) == "-G-G");
  check_names(
      spec,
      {{"layers.1.attention_post_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
       {"layers.1.mlp_post_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"},
       {"layers.1.attention.k_norm.weight", "model.layers.1.self_attn.k_norm.weight"}});
  check_refusals("exaone4", {{with(heads, {{"sliding_window_pattern", "LLLG"}}),
                              "sliding_window_pattern is \"LLLG\", expected a number"}});
}

TEST_CASE("glm rotates half of each head in interleaved pairs; glm4 has sandwich norms") {
  for (const char* family : {"glm", "glm4"}) {
    const ModelSpec spec = parse_family(family);
    CHECK(spec.num_kv_heads == 2);
    CHECK(spec.head_dim == 128);
    CHECK(spec.max_positions == 131072);
    CHECK(spec.norm.eps == 1.5625e-7);
    CHECK(spec.qkv_bias);
    CHECK_FALSE(spec.o_bias);
    CHECK(spec.fused_gate_up);
    CHECK(spec.rope.rotary_dim == 64);
    CHECK(spec.rope.interleaved);
    CHECK(spec.rope.theta == 10000);
    CHECK_FALSE(spec.tie_word_embeddings);
    CHECK(spec.padding_token == -1);  // the default is beyond this vocabulary
    CHECK(parse_family(family, {{"vocab_size", 200000}}).padding_token == 151329);
    CHECK(parse_family(family, {{"partial_rotary_factor", 0.25}}).rope.rotary_dim == 32);
    CHECK(parse_family(family, {{"partial_rotary_factor", nullptr}}).rope.rotary_dim == 0);
    CHECK_FALSE(parse_family(family, {{"attention_bias", false}}).qkv_bias);
    check_names(spec,
                {{"layers.1.mlp.gate_up.weight", "model.layers.1.mlp.gate_up_proj.weight"},
                 {"layers.1.mlp_norm.weight", "model.layers.1.post_attention_layernorm.weight"}});
  }
  CHECK(parse_family("glm").norm_placement == NormPlacement::kPre);
  const ModelSpec sandwich = parse_family("glm4");
  CHECK(sandwich.norm_placement == NormPlacement::kSandwich);
  check_names(
      sandwich,
      {{"layers.1.attention_post_norm.weight", "model.layers.1.post_self_attn_layernorm.weight"},
       {"layers.1.mlp_post_norm.weight", "model.layers.1.post_mlp_layernorm.weight"}});
}

TEST_CASE("hunyuan_v1_dense has norms behind the rotary embeddings, and a factor of theta") {
  const ModelSpec spec = parse_family("hunyuan_v1_dense");
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.qk_norm_after_rope);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  const json published = {
      {"head_dim", 16},
      {"attention_bias", true},
      {"use_qk_norm", true},
      {"use_cla", false},
      {"rope_scaling", {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}}}};
  const ModelSpec other = parse_family("hunyuan_v1_dense", published);
  CHECK(other.head_dim == 16);
  CHECK(other.o_bias);
  CHECK(other.rope.scaling == RopeScaling::kNone);
  CHECK(other.rope.theta == doctest::Approx(10000 * std::pow(1000.0, 16.0 / 14)));
  CHECK(other.unknown_keys.empty());
  const json plain = {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
  CHECK(parse_family("hunyuan_v1_dense", plain).rope.scaling == RopeScaling::kDynamic);
  check_names(
      spec,
      {{"layers.1.attention.q_norm.weight", "model.layers.1.self_attn.query_layernorm.weight"},
       {"layers.1.attention.k_norm.weight", "model.layers.1.self_attn.key_layernorm.weight"}});
  check_refusals("hunyuan_v1_dense",
                 {{{{"use_qk_norm", false}}, "use_qk_norm is false; only true is supported"},
                  {{{"use_cla", true}}, "use_cla is true"},
                  {{{"hidden_size", 8}, {"rope_scaling", published["rope_scaling"]}},
                   "rope_scaling.alpha is 1000, which gives no theta"}});
}

TEST_CASE("ministral3 scales queries at later positions") {
  const json heads = {{"num_attention_heads", 8}};
  const ModelSpec spec = parse_family("ministral3", heads);
  CHECK(spec.num_kv_heads == 8);
  CHECK(spec.head_dim == 128);
  CHECK(spec.max_positions == 262144);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.rope.scaling == RopeScaling::kYarn);
  CHECK(spec.rope.theta == 1000000);
  CHECK(spec.rope.factor == 16);
  CHECK(spec.rope.attention_factor == 1);
  CHECK(spec.rope.original_max_positions == 16384);
  REQUIRE(spec.query_scale);
  CHECK(spec.query_scale->scale == 0.1);
  CHECK(spec.query_scale->interval == 16384);
  CHECK(spec.query_scale->offset == 0);
  CHECK(spec.layer(2).scales_queries);
  CHECK(windows(spec) == Windows{0, 0, 0});
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 11);
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32},
                     {"llama_4_scaling_beta", 0.5}};
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const ModelSpec other = parse_family("ministral3", with(heads, {{key, yarn}}));
    CHECK(other.rope.factor == 4);
    CHECK(other.query_scale->scale == 0.5);
    CHECK(other.query_scale->interval == 32);
  }
  json plain = with(yarn, {{"rope_type", "default"}});
  CHECK(
      parse_family("ministral3", with(heads, {{"rope_parameters", plain}})).query_scale->interval ==
      32);
  plain.erase("original_max_position_embeddings");
  json betaless = yarn;
  betaless.erase("llama_4_scaling_beta");
  check_refusals(
      "ministral3",
      {{with(heads, {{"rope_parameters", plain}}),
        "rope_parameters.original_max_position_embeddings is missing"},
       {with(heads, {{"rope_parameters", betaless}}),
        "rope_parameters.llama_4_scaling_beta is missing"},
       {with(heads, {{"rope_scaling", betaless}}), "rope_scaling.llama_4_scaling_beta is missing"},
       {with(heads, {{"attention_bias", true}}), "attention_bias is true"}});
  CHECK(windows(parse_family("ministral3", with(heads, {{"sliding_window", 7}}))) ==
        Windows{7, 7, 7});
}

TEST_CASE("phi3 has fused products, and longrope under three names") {
  const ModelSpec spec = parse_family("phi3");
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.max_positions == 4096);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.qkv_layout == QkvLayout::kStacked);
  CHECK(spec.fused_gate_up);
  CHECK(spec.activation == Activation::kSilu);
  CHECK_FALSE(spec.qkv_bias);
  CHECK(windows(spec) == Windows{0, 0, 0});
  CHECK(spec.rope.rotary_dim == 0);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(parse_family("phi3", {{"vocab_size", 32064}}).padding_token == 32000);
  const ModelSpec other = parse_family("phi3", {{"sliding_window", 7},
                                                {"partial_rotary_factor", 0.5},
                                                {"resid_pdrop", 0.1},
                                                {"embd_pdrop", 0.2},
                                                {"attention_bias", false},
                                                {"tie_word_embeddings", true}});
  CHECK(windows(other) == Windows{7, 7, 7});
  CHECK(other.rope.rotary_dim == 4);
  CHECK(other.residual_dropout == 0.1);
  CHECK(other.embedding_dropout == 0);  // no code of transformers applies it
  for (const char* kind : {"longrope", "su", "yarn"}) {
    const json scaling = {
        {"type", kind}, {"short_factor", {1, 2, 3, 4}}, {"long_factor", {2, 3, 4, 5}}};
    const ModelSpec scaled =
        parse_family("phi3", {{"rope_scaling", scaling}, {"max_position_embeddings", 131072}});
    CHECK(scaled.rope.scaling == RopeScaling::kLongRope);
    CHECK(scaled.rope.factor == 32);
    CHECK(scaled.rope.original_max_positions == 4096);
  }
  check_names(spec, {{"layers.1.attention.qkv.weight", "model.layers.1.self_attn.qkv_proj.weight"},
                     {"layers.1.attention.o.weight", "model.layers.1.self_attn.o_proj.weight"},
                     {"layers.1.mlp.gate_up.weight", "model.layers.1.mlp.gate_up_proj.weight"}});
  check_refusals("phi3", {{{{"attention_bias", true}}, "attention_bias is true"},
                          {{{"layer_types", kTypes}}, "layer_types is"}});
}

}  // namespace zeroth::model::families_gated_test
