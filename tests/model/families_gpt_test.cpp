// What the families with LayerNorm and plain MLPs read of their config.json, and StableLM, whose
// MLP has a gate.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_gpt_test {
namespace {

using nlohmann::json;

// A config.json of GPT-J with the keys alone that have no default, but for a smaller rotary_dim.
json gptj(const json& changes = json::object()) {
  json config = {{"hidden_size", nullptr},
                 {"num_hidden_layers", nullptr},
                 {"n_embd", 32},
                 {"n_layer", 3},
                 {"num_attention_heads", nullptr},
                 {"n_head", 4},
                 {"n_positions", 64},
                 {"rotary_dim", 4}};
  config.update(changes);
  return config;
}

}  // namespace

TEST_CASE("falcon of 7B has one norm, and one key and value head in a stacked product") {
  const ModelSpec spec = parse_family("falcon");
  CHECK(spec.intermediate_size == 128);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.num_kv_heads == 1);
  CHECK(spec.head_dim == 8);
  CHECK(spec.qkv_layout == QkvLayout::kStacked);
  CHECK(spec.parallel_residual == ParallelResidual::kOneNorm);
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.activation == Activation::kGelu);
  CHECK_FALSE(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.rope.theta == 10000);
  CHECK(spec.padding_token == -1);
  CHECK(parse_family("falcon", {{"pad_token_id", 3}}).padding_token == -1);
  const ModelSpec other = parse_family("falcon", {{"ffn_hidden_size", 40},
                                                  {"layer_norm_epsilon", 1e-6},
                                                  {"bias", true},
                                                  {"activation", "relu"},
                                                  {"rope_theta", 77.0},
                                                  {"tie_word_embeddings", false}});
  CHECK(other.intermediate_size == 40);
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.qkv_bias);
  CHECK(other.o_bias);
  CHECK(other.mlp_bias);
  CHECK(other.activation == Activation::kRelu);
  CHECK(other.rope.theta == 77);
  CHECK_FALSE(other.tie_word_embeddings);
  check_names(spec, {{"embedding.weight", "transformer.word_embeddings.weight"},
                     {"layers.2.attention_norm.bias", "transformer.h.2.input_layernorm.bias"},
                     {"layers.0.attention.qkv.weight",
                      "transformer.h.0.self_attention.query_key_value.weight"},
                     {"layers.0.attention.o.weight", "transformer.h.0.self_attention.dense.weight"},
                     {"layers.1.mlp.up.weight", "transformer.h.1.mlp.dense_h_to_4h.weight"},
                     {"layers.1.mlp.down.weight", "transformer.h.1.mlp.dense_4h_to_h.weight"},
                     {"head.norm.weight", "transformer.ln_f.weight"}});
}

TEST_CASE("falcon of 40B has two norms and grouped products, and others are sequential") {
  const json grouped = {{"new_decoder_architecture", true}, {"num_kv_heads", 2}};
  const ModelSpec spec = parse_family("falcon", grouped);
  CHECK(spec.num_kv_heads == 2);
  CHECK(spec.qkv_layout == QkvLayout::kGrouped);
  CHECK(spec.parallel_residual == ParallelResidual::kTwoNorms);
  check_names(spec, {{"layers.2.attention_norm.bias", "transformer.h.2.ln_attn.bias"},
                     {"layers.2.mlp_norm.weight", "transformer.h.2.ln_mlp.weight"}});
  CHECK(parse_family("falcon", {{"new_decoder_architecture", true}}).num_kv_heads == 4);
  json one_norm = grouped;
  one_norm["num_ln_in_parallel_attn"] = 1;
  CHECK(parse_family("falcon", one_norm).parallel_residual == ParallelResidual::kOneNorm);
  const ModelSpec sequential =
      parse_family("falcon", {{"parallel_attn", false}, {"multi_query", false}});
  CHECK(sequential.parallel_residual == ParallelResidual::kNone);
  CHECK(sequential.num_kv_heads == 4);
  CHECK(sequential.qkv_layout == QkvLayout::kGrouped);
  check_names(sequential,
              {{"layers.2.mlp_norm.bias", "transformer.h.2.post_attention_layernorm.bias"}});
  check_refusals("falcon", {{{{"num_ln_in_parallel_attn", 2}},
                             "num_ln_in_parallel_attn is 2; supported are 1, and 2 with"},
                            {{{"new_decoder_architecture", true}, {"num_kv_heads", 3}},
                             "num_attention_heads is 4, not a multiple of num_kv_heads 3"},
                            {{{"n_embed", 64}}, "n_embed is 64; only 32 is supported"},
                            {{{"hidden_dropout", 0.1}}, "hidden_dropout is 0.1"},
                            {{{"attention_dropout", 0.1}}, "attention_dropout is 0.1"}});
}

TEST_CASE("gpt_neox has two norms side by side, and rotates a quarter of each head") {
  const json heads = {{"hidden_size", 64}};
  const ModelSpec spec = parse_family("gpt_neox", heads);
  CHECK(spec.max_positions == 2048);
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.parallel_residual == ParallelResidual::kTwoNorms);
  CHECK(spec.qkv_layout == QkvLayout::kGrouped);
  CHECK(spec.activation == Activation::kGelu);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.rope.interleaved);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(spec.residual_dropout == 0);
  const ModelSpec other = parse_family("gpt_neox", {{"hidden_size", 64},
                                                    {"use_parallel_residual", false},
                                                    {"rotary_pct", 1.0},
                                                    {"rotary_emb_base", 500},
                                                    {"attention_bias", false},
                                                    {"layer_norm_eps", 1e-6},
                                                    {"hidden_dropout", 0.1},
                                                    {"attention_dropout", 0.2},
                                                    {"hidden_act", "gelu_fast"}});
  CHECK(other.parallel_residual == ParallelResidual::kNone);
  CHECK(other.rope.rotary_dim == 0);
  CHECK(other.rope.theta == 500);
  CHECK_FALSE(other.qkv_bias);
  CHECK(other.mlp_bias);
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.embedding_dropout == 0.1);
  CHECK(other.residual_dropout == 0.1);
  CHECK(other.attention_dropout == 0.2);
  CHECK(other.activation == Activation::kGeluTanh);
  const json rope = {{"rope_theta", 100.0}, {"partial_rotary_factor", 0.5}};
  const ModelSpec written = parse_family("gpt_neox", {{"rope_parameters", rope}});
  CHECK(written.rope.rotary_dim == 4);
  CHECK(written.rope.theta == 100);
  // Dropouts that GPT-NeoX-20B has under names that transformers does not read.
  const ModelSpec old = parse_family(
      "gpt_neox",
      {{"hidden_size", 64}, {"attention_probs_dropout_prob", 0.1}, {"hidden_dropout_prob", 0.1}});
  CHECK(old.attention_dropout == 0);
  CHECK(old.residual_dropout == 0);
  check_names(spec,
              {{"embedding.weight", "gpt_neox.embed_in.weight"},
               {"layers.2.mlp_norm.bias", "gpt_neox.layers.2.post_attention_layernorm.bias"},
               {"layers.0.attention.qkv.bias", "gpt_neox.layers.0.attention.query_key_value.bias"},
               {"layers.0.attention.o.weight", "gpt_neox.layers.0.attention.dense.weight"},
               {"head.norm.weight", "gpt_neox.final_layer_norm.weight"},
               {"head.weight", "embed_out.weight"}});
  check_refusals("gpt_neox",
                 {{{{"rotary_pct", 0.1}}, "rotary_pct is 0.1, but rotary embeddings"},
                  {{{"rotary_pct", 2.0}}, "rotary_pct is 2, expected at most 1"},
                  {{{"hidden_size", 64}, {"sliding_window", 8}}, "sliding_window is 8"}});
}

TEST_CASE("gptj rotates interleaved pairs, and has a bias of the head") {
  const ModelSpec spec = parse_family("gptj", gptj());
  CHECK(spec.hidden_size == 32);
  CHECK(spec.intermediate_size == 128);
  CHECK(spec.num_kv_heads == 4);
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.parallel_residual == ParallelResidual::kOneNorm);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.head_bias);
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.rope.interleaved);
  CHECK_FALSE(spec.learned_positions);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(spec.embedding_dropout == 0);
  CHECK(spec.attention_dropout == 0);
  CHECK(spec.residual_dropout == 0);
  const json wide = {{"n_embd", 256}, {"rotary_dim", nullptr}, {"n_inner", 48}};
  CHECK(parse_family("gptj", gptj(wide)).rope.rotary_dim == 64);
  CHECK(parse_family("gptj", gptj(wide)).intermediate_size == 48);
  CHECK(parse_family("gptj", gptj({{"resid_pdrop", 0.1}})).residual_dropout == 0.1);
  CHECK(parse_family("gptj", gptj({{"rotary", true}, {"scale_attn_weights", true}})).unknown_keys ==
        std::vector<std::string>{"intermediate_size"});
  check_names(spec, {{"embedding.weight", "transformer.wte.weight"},
                     {"layers.2.attention_norm.bias", "transformer.h.2.ln_1.bias"},
                     {"layers.2.attention.q.weight", "transformer.h.2.attn.q_proj.weight"},
                     {"layers.2.attention.o.weight", "transformer.h.2.attn.out_proj.weight"},
                     {"layers.1.mlp.up.bias", "transformer.h.1.mlp.fc_in.bias"},
                     {"layers.1.mlp.down.bias", "transformer.h.1.mlp.fc_out.bias"},
                     {"head.norm.bias", "transformer.ln_f.bias"},
                     {"head.bias", "lm_head.bias"}});
  check_refusals("gptj",
                 {{gptj({{"rotary_dim", 3}}), "rotary_dim is 3, expected an even number up to 8"},
                  {gptj({{"rotary_dim", 10}}), "rotary_dim is 10, expected an even number up to 8"},
                  {gptj({{"rotary", false}}), "rotary is false"},
                  {gptj({{"scale_attn_weights", false}}), "scale_attn_weights is false"},
                  {gptj({{"num_attention_heads", 8}}), "num_attention_heads is 8; only 4"},
                  {gptj({{"attention_dropout", 0.1}}), "attention_dropout is 0.1"}});
}

TEST_CASE("nemotron has LayerNorm around 1, and squared ReLU") {
  const ModelSpec spec = parse_family("nemotron");
  CHECK(spec.max_positions == 4096);
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.norm.bias);
  CHECK(spec.norm.weight_offset == 1);
  CHECK(spec.activation == Activation::kReluSquared);
  CHECK_FALSE(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(spec.initializer_range == 0.0134);
  const ModelSpec other = parse_family("nemotron", {{"norm_eps", 1e-6},
                                                    {"head_dim", 16},
                                                    {"num_key_value_heads", 2},
                                                    {"partial_rotary_factor", 1.0},
                                                    {"attention_bias", true},
                                                    {"mlp_bias", true}});
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.head_dim == 16);
  CHECK(other.num_kv_heads == 2);
  CHECK(other.rope.rotary_dim == 0);
  CHECK(other.o_bias);
  CHECK(other.mlp_bias);
  check_names(spec, {{"layers.1.mlp.up.weight", "model.layers.1.mlp.up_proj.weight"},
                     {"layers.1.mlp_norm.bias", "model.layers.1.post_attention_layernorm.bias"},
                     {"head.norm.bias", "model.norm.bias"}});
}

TEST_CASE("opt has positions behind two rows, and biases") {
  json opt = {{"ffn_dim", 48}};
  const ModelSpec spec = parse_family("opt", opt);
  CHECK(spec.intermediate_size == 48);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.learned_positions);
  CHECK(spec.position_offset == 2);
  CHECK(ropes(spec) == "---");
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.norm_placement == NormPlacement::kPre);
  CHECK(spec.activation == Activation::kRelu);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.residual_dropout == 0.1);
  CHECK(spec.attention_dropout == 0);
  CHECK(spec.embedding_dropout == 0);
  CHECK(spec.padding_token == 1);
  CHECK(spec.initializer_range == 0.02);
  const ModelSpec other = parse_family("opt", {{"ffn_dim", 48},
                                               {"enable_bias", false},
                                               {"dropout", 0.0},
                                               {"attention_dropout", 0.2},
                                               {"activation_function", "gelu"},
                                               {"init_std", 0.006},
                                               {"word_embed_proj_dim", 32}});
  CHECK_FALSE(other.qkv_bias);
  CHECK_FALSE(other.mlp_bias);
  CHECK(other.residual_dropout == 0);
  CHECK(other.attention_dropout == 0.2);
  CHECK(other.activation == Activation::kGelu);
  CHECK(other.initializer_range == 0.006);
  check_names(spec,
              {{"embedding.weight", "model.decoder.embed_tokens.weight"},
               {"embedding.positions", "model.decoder.embed_positions.weight"},
               {"layers.2.attention_norm.bias", "model.decoder.layers.2.self_attn_layer_norm.bias"},
               {"layers.2.attention.o.bias", "model.decoder.layers.2.self_attn.out_proj.bias"},
               {"layers.2.mlp_norm.bias", "model.decoder.layers.2.final_layer_norm.bias"},
               {"layers.2.mlp.up.weight", "model.decoder.layers.2.fc1.weight"},
               {"head.norm.weight", "model.decoder.final_layer_norm.weight"}});
  CHECK(canonical_name(spec, "decoder.layers.2.fc2.bias") == "layers.2.mlp.down.bias");
  CHECK(canonical_name(spec, "decoder.embed_tokens.weight") == "embedding.weight");
  for (const auto& [change, message] : std::vector<std::pair<json, std::string>>{
           {{{"do_layer_norm_before", false}}, "do_layer_norm_before is false; only true"},
           {{{"layer_norm_elementwise_affine", false}}, "layer_norm_elementwise_affine is false"},
           {{{"word_embed_proj_dim", 16}}, "word_embed_proj_dim is 16; only 32 is supported"},
           {{{"_remove_final_layer_norm", true}}, "_remove_final_layer_norm is true"},
           {{{"layerdrop", 0.1}}, "layerdrop is 0.1"}}) {
    json config = opt;
    config.update(change);
    check_refusals("opt", {{config, message}});
  }
}

TEST_CASE("phi has one norm, half of each head rotated, and biases everywhere") {
  const ModelSpec spec = parse_family("phi");
  CHECK(spec.max_positions == 2048);
  CHECK(spec.num_kv_heads == 4);
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.parallel_residual == ParallelResidual::kOneNorm);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.head_bias);
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.qk_norm == QkNorm::kNone);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(spec.embedding_dropout == 0);
  CHECK(spec.attention_dropout == 0);
  CHECK(spec.residual_dropout == 0);
  const ModelSpec other = parse_family("phi", {{"layer_norm_eps", 1e-6},
                                               {"partial_rotary_factor", 0.25},
                                               {"qk_layernorm", true},
                                               {"resid_pdrop", 0.1},
                                               {"embd_pdrop", 0.2},
                                               {"attention_dropout", 0.3}});
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.rope.rotary_dim == 2);
  CHECK(other.qk_norm == QkNorm::kPerHead);
  check_layer_norm(other.qk_norm_spec, 1e-6);
  CHECK(other.residual_dropout == 0.1);
  CHECK(other.embedding_dropout == 0.2);
  CHECK(other.attention_dropout == 0.3);
  check_names(other,
              {{"layers.2.attention.o.bias", "model.layers.2.self_attn.dense.bias"},
               {"layers.2.attention.q_norm.bias", "model.layers.2.self_attn.q_layernorm.bias"},
               {"layers.1.mlp.up.weight", "model.layers.1.mlp.fc1.weight"},
               {"layers.1.mlp.down.bias", "model.layers.1.mlp.fc2.bias"},
               {"head.norm.bias", "model.final_layernorm.bias"},
               {"head.bias", "lm_head.bias"}});
  check_refusals("phi", {{{{"partial_rotary_factor", 0.125}}, "partial_rotary_factor is 0.125"},
                         {{{"sliding_window", 8}}, "sliding_window is 8"}});
}

TEST_CASE("stablelm has LayerNorm, and a quarter of each head rotated") {
  const json heads = {{"num_attention_heads", 32}, {"hidden_size", 256}};
  const ModelSpec spec = parse_family("stablelm", heads);
  CHECK(spec.max_positions == 4096);
  CHECK(spec.num_kv_heads == 32);
  check_layer_norm(spec.norm, 1e-5);
  CHECK(spec.parallel_residual == ParallelResidual::kNone);
  CHECK(spec.qk_norm == QkNorm::kNone);
  CHECK(spec.activation == Activation::kSilu);
  CHECK(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.o_bias);
  CHECK(spec.rope.rotary_dim == 2);
  CHECK(spec.rope.theta == 10000);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  const ModelSpec other = parse_family("stablelm", {{"num_key_value_heads", 2},
                                                    {"layer_norm_eps", 1e-6},
                                                    {"use_qkv_bias", true},
                                                    {"use_parallel_residual", true},
                                                    {"qk_layernorm", true},
                                                    {"partial_rotary_factor", 0.5}});
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.qkv_bias);
  CHECK_FALSE(other.o_bias);
  CHECK(other.parallel_residual == ParallelResidual::kOneNorm);
  CHECK(other.qk_norm == QkNorm::kPerHeadOwnWeight);
  CHECK_FALSE(other.qk_norm_spec.bias);
  CHECK(other.rope.rotary_dim == 4);
  check_names(spec, {{"layers.1.mlp.gate.weight", "model.layers.1.mlp.gate_proj.weight"},
                     {"layers.1.mlp_norm.bias", "model.layers.1.post_attention_layernorm.bias"},
                     {"layers.1.attention.v.bias", "model.layers.1.self_attn.v_proj.bias"}});
  check_refusals("stablelm",
                 {{{{"num_attention_heads", 4}, {"hidden_dropout", 0.1}}, "hidden_dropout is 0.1"},
                  {{{"num_attention_heads", 4}},
                   "num_attention_heads is 4, not a multiple of num_key_value_heads 32"}});
}

}  // namespace zeroth::model::families_gpt_test
