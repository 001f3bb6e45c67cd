// What the families with ALiBi read of their config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_alibi_test {
namespace {

using nlohmann::json;

// Slopes of six heads: of every second one of eight, and then of others.
const std::vector<double> kSixSlopes = {0.25, 0.0625, 0x1p-6, 0x1p-8, 0.5, 0.125};

// Return the spec of a config.json with the keys alone that have no default, and changes.
ModelSpec parse_bloom(const json& changes = json::object()) {
  const json config = {{"model_type", "bloom"},
                       {"vocab_size", 64},
                       {"hidden_size", 48},
                       {"n_layer", 3},
                       {"n_head", 6}};
  return parse_model_spec(with(config, changes).dump(), "config.json");
}
ModelSpec parse_mpt(const json& changes = json::object()) {
  const json config = {
      {"model_type", "mpt"}, {"vocab_size", 64}, {"d_model", 48}, {"n_layers", 3}, {"n_heads", 6}};
  return parse_model_spec(with(config, changes).dump(), "config.json");
}

// Returns a change of one key of attn_config.
json attention(const char* key, const json& value) {
  return {{"attn_config", {{key, value}}}};
}

// Check that a change is refused with a message that contains the text.
void check_bloom(const json& changes, const char* text) {
  CHECK_THROWS_WITH_AS(parse_bloom(changes), doctest::Contains(text), Error);
}
void check_mpt(const json& changes, const char* text) {
  CHECK_THROWS_WITH_AS(parse_mpt(changes), doctest::Contains(text), Error);
}

}  // namespace

TEST_CASE("falcon of RW has ALiBi, with rounded slopes of scores before their scale") {
  CHECK(parse_family("falcon").alibi_slopes.empty());
  CHECK(ropes(parse_family("falcon", {{"alibi", false}})) == "GGG");
  const ModelSpec spec =
      parse_family("falcon", {{"alibi", true}, {"hidden_size", 192}, {"num_attention_heads", 12}});
  CHECK(ropes(spec) == "---");
  REQUIRE(spec.alibi_slopes.size() == 12);
  CHECK(spec.alibi_slopes[0] == 0.5 / 4);
  CHECK(spec.alibi_slopes[8] == 0.70703125 / 4);  // 1 / sqrt(2) in bf16
  CHECK(spec.alibi_slopes[10] == 0.1767578125 / 4);
  check_refusals("falcon", {{{{"alibi", true}, {"attention_dropout", 0.1}}, "attention_dropout is"},
                            {{{"alibi", 1}}, "alibi is 1, expected true or false"}});
}

TEST_CASE("bloom has ALiBi, and a norm of the embedding") {
  const ModelSpec spec = parse_bloom();
  CHECK(spec.num_layers == 3);
  CHECK(spec.num_kv_heads == 6);
  CHECK(spec.head_dim == 8);
  CHECK(spec.intermediate_size == 192);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.alibi_slopes == kSixSlopes);
  CHECK(parse_bloom({{"n_layer", nullptr}}).num_layers == 2);
  CHECK(parse_bloom({{"n_head", 8}}).alibi_slopes[1] == 0.25);
  CHECK(parse_bloom({{"n_head", 1}}).alibi_slopes == std::vector<double>{0x1p-8});
  CHECK(parse_bloom({{"n_head", 16}}).alibi_slopes[2] == doctest::Approx(std::exp2(-1.5)));
  CHECK(ropes(spec) == "---");
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.embedding_norm);
  CHECK(spec.qkv_layout == QkvLayout::kGrouped);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.attention_dropout == 0);
  CHECK(spec.residual_dropout == 0);
  CHECK(parse_bloom({{"pad_token_id", 3}}).padding_token == -1);
}

TEST_CASE("bloom has a size under either name, and dropouts") {
  const ModelSpec other = parse_bloom({{"layer_norm_epsilon", 1e-6},
                                       {"attention_dropout", 0.1},
                                       {"hidden_dropout", 0.2},
                                       {"seq_length", 512},
                                       {"tie_word_embeddings", false},
                                       {"pretraining_tp", 1},
                                       {"slow_but_exact", true}});
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.attention_dropout == 0.1);
  CHECK(other.residual_dropout == 0.2);
  CHECK(other.max_positions == 512);
  CHECK_FALSE(other.tie_word_embeddings);
  CHECK(other.unknown_keys.empty());
  // Names of the largest model's file.
  const ModelSpec large = parse_bloom({{"hidden_size", nullptr},
                                       {"n_embed", 96},
                                       {"n_head", nullptr},
                                       {"num_attention_heads", 4},
                                       {"n_layer", nullptr},
                                       {"num_hidden_layers", 2},
                                       {"n_inner", nullptr},
                                       {"pretraining_tp", 4},
                                       {"slow_but_exact", false},
                                       {"offset_alibi", 100}});
  CHECK(large.hidden_size == 96);
  CHECK(large.num_heads == 4);
  CHECK(large.num_layers == 2);
  CHECK(large.unknown_keys == std::vector<std::string>{"offset_alibi"});
}

TEST_CASE("bloom has names of its own, and keys that are refused") {
  check_names(
      parse_bloom(),
      {{"embedding.weight", "transformer.word_embeddings.weight"},
       {"embedding.norm.bias", "transformer.word_embeddings_layernorm.bias"},
       {"layers.2.attention_norm.bias", "transformer.h.2.input_layernorm.bias"},
       {"layers.0.attention.qkv.bias", "transformer.h.0.self_attention.query_key_value.bias"},
       {"layers.0.attention.o.weight", "transformer.h.0.self_attention.dense.weight"},
       {"layers.2.mlp_norm.bias", "transformer.h.2.post_attention_layernorm.bias"},
       {"layers.1.mlp.up.bias", "transformer.h.1.mlp.dense_h_to_4h.bias"},
       {"layers.1.mlp.down.weight", "transformer.h.1.mlp.dense_4h_to_h.weight"},
       {"head.norm.weight", "transformer.ln_f.weight"}});
  check_bloom({{"n_embed", 96}}, "hidden_size is 48; only 96 is supported");
  check_bloom({{"num_hidden_layers", 4}}, "n_layer is 3; only 4 is supported");
  check_bloom({{"num_attention_heads", 3}}, "n_head is 6; only 3 is supported");
  check_bloom({{"n_head", nullptr}}, "n_head is missing");
  check_bloom({{"n_head", 5}}, "hidden_size is 48, not a multiple of n_head 5");
  check_bloom({{"n_inner", 100}}, "n_inner is 100; only 192 is supported");
  check_bloom({{"apply_residual_connection_post_layernorm", true}},
              "apply_residual_connection_post_layernorm is true, which is not supported");
  check_bloom({{"pretraining_tp", 2}, {"slow_but_exact", true}}, "slow_but_exact is true");
  check_bloom({{"hidden_dropout", 1}}, "hidden_dropout is 1, expected 0 <= p < 1");
}

TEST_CASE("mpt has ALiBi, and the keys of its attention in an object") {
  const ModelSpec spec = parse_mpt();
  CHECK(spec.num_layers == 3);
  CHECK(spec.num_kv_heads == 6);
  CHECK(spec.intermediate_size == 192);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.alibi_slopes == kSixSlopes);
  CHECK(ropes(spec) == "---");
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.norm.weight);
  CHECK_FALSE(spec.norm.bias);
  CHECK_FALSE(spec.embedding_norm);
  CHECK(spec.qkv_layout == QkvLayout::kStacked);
  CHECK(spec.activation == Activation::kGelu);
  CHECK_FALSE(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK_FALSE(spec.clip_qkv);
  CHECK_FALSE(spec.layers[0].score_scale);
  CHECK(spec.attention_dropout == 0);
  CHECK(parse_mpt({{"pad_token_id", 3}}).padding_token == -1);
}

TEST_CASE("mpt reads what its attention and norms have") {
  const ModelSpec other = parse_mpt({{"max_seq_len", 512},
                                     {"layer_norm_epsilon", 1e-6},
                                     {"tie_word_embeddings", false},
                                     {"hidden_size", 48},
                                     {"num_hidden_layers", 3},
                                     {"num_attention_heads", 6},
                                     {"expansion_ratio", 4},
                                     {"no_bias", true},
                                     {"norm_type", "layernorm"},
                                     {"learned_pos_emb", true},
                                     {"init_device", "meta"},
                                     {"embedding_fraction", 1},
                                     {"logit_scale", nullptr},
                                     {"attn_config",
                                      {{"clip_qkv", 6},
                                       {"softmax_scale", 0.5},
                                       {"attn_pdrop", 0.1},
                                       {"alibi", true},
                                       {"alibi_bias_max", 8},
                                       {"attn_impl", "triton"},
                                       {"attn_type", "multihead_attention"},
                                       {"prefix_lm", false}}}});
  CHECK(other.max_positions == 512);
  CHECK(other.norm.eps == 1e-6);
  CHECK_FALSE(other.tie_word_embeddings);
  CHECK(other.clip_qkv == 6);
  CHECK(other.layers[2].score_scale == 0.5);
  CHECK(other.attention_dropout == 0.1);
  CHECK(other.residual_dropout == 0.1);
  CHECK(other.unknown_keys.empty());
  CHECK_FALSE(parse_mpt(attention("clip_qkv", nullptr)).clip_qkv);
  CHECK_FALSE(parse_mpt(attention("clip_qkv", 0)).clip_qkv);
  CHECK(parse_mpt(attention("softmax_scale", nullptr)).unknown_keys.empty());
  CHECK(parse_mpt(attention("rope", false)).unknown_keys ==
        std::vector<std::string>{"attn_config.rope"});
}

TEST_CASE("mpt has names of its own, and keys that are refused") {
  check_names(parse_mpt(),
              {{"embedding.weight", "transformer.wte.weight"},
               {"layers.2.attention_norm.weight", "transformer.blocks.2.norm_1.weight"},
               {"layers.0.attention.qkv.weight", "transformer.blocks.0.attn.Wqkv.weight"},
               {"layers.0.attention.o.weight", "transformer.blocks.0.attn.out_proj.weight"},
               {"layers.2.mlp_norm.weight", "transformer.blocks.2.norm_2.weight"},
               {"layers.1.mlp.up.weight", "transformer.blocks.1.ffn.up_proj.weight"},
               {"layers.1.mlp.down.weight", "transformer.blocks.1.ffn.down_proj.weight"},
               {"head.norm.weight", "transformer.norm_f.weight"}});
  check_mpt({{"d_model", nullptr}}, "d_model is missing");
  check_mpt({{"hidden_size", 64}}, "hidden_size is 64; only 48 is supported");
  check_mpt({{"num_hidden_layers", 2}}, "num_hidden_layers is 2; only 3 is supported");
  check_mpt({{"num_attention_heads", 2}}, "num_attention_heads is 2; only 6 is supported");
  check_mpt({{"expansion_ratio", 2}}, "expansion_ratio is 2; only 4 is supported");
  check_mpt({{"attn_config", 1}}, "attn_config is 1, expected an object");
  check_mpt({{"resid_pdrop", 0.1}}, "resid_pdrop is 0.1, which is not supported");
  check_mpt({{"emb_pdrop", 0.1}}, "emb_pdrop is 0.1, which is not supported");
  check_mpt({{"no_bias", false}}, "no_bias is false; only true is supported");
  check_mpt({{"embedding_fraction", 0.5}}, "embedding_fraction is 0.5; only 1.0 is supported");
  check_mpt({{"norm_type", "rmsnorm"}}, "norm_type is \"rmsnorm\"");
  check_mpt({{"logit_scale", 0.5}}, "logit_scale is 0.5");
  check_mpt(attention("alibi", false), "attn_config.alibi is false; only true is supported");
  check_mpt(attention("alibi_bias_max", 16),
            "attn_config.alibi_bias_max is 16; only 8 is supported");
  check_mpt(attention("attn_type", "multiquery_attention"), "attn_config.attn_type is");
  check_mpt(attention("prefix_lm", true), "attn_config.prefix_lm is true");
  check_mpt(attention("qk_ln", true), "attn_config.qk_ln is true");
  check_mpt(attention("attn_uses_sequence_id", true), "attn_config.attn_uses_sequence_id is true");
  check_mpt(attention("clip_qkv", -1), "attn_config.clip_qkv is -1, expected more than 0");
  check_mpt(attention("softmax_scale", 0), "attn_config.softmax_scale is 0, expected more than 0");
  check_mpt(attention("attn_pdrop", 1), "attn_config.attn_pdrop is 1, expected 0 <= p < 1");
}

}  // namespace zeroth::model::families_alibi_test
