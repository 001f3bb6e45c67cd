// What Gemma and OLMo read of their config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_gemma_olmo_test {
namespace {

using nlohmann::json;

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
