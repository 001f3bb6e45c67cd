// What each family reads of its config.json, and how its files name parameters.
#include "model/hf/families/family.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_test {
namespace {

using nlohmann::json;

}  // namespace

TEST_CASE("families are found by model_type, and listed in messages") {
  CHECK(find_family("qwen3")->model_type == "qwen3");
  CHECK(find_family("phi4") == nullptr);
  CHECK(std::ranges::is_sorted(family_names()));
  const std::string said = refusal("qwen4", json::object());
  CHECK(said.find("model_type is \"qwen4\"; supported are apertus, arcee, ") != std::string::npos);
  CHECK(said.find(", of which qwen2 has the nearest name; ") != std::string::npos);
}

TEST_CASE("ministral is Mistral with a window in the layers that layer_types names") {
  const json heads = {{"num_attention_heads", 8}};
  const ModelSpec spec = parse_family("ministral", heads);
  CHECK(windows(spec) == std::vector<int64_t>{4096, 4096, 4096});
  CHECK(spec.max_positions == 131072);
  json types = heads;
  types["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  CHECK(windows(parse_family("ministral", types)) == std::vector<int64_t>{0, 4096, 0});
  CHECK(refusal("mistral", types).find("layer_types") != std::string::npos);
  json off = heads;
  off["sliding_window"] = nullptr;
  CHECK(windows(parse_family("ministral", off)) == std::vector<int64_t>{0, 0, 0});
}

TEST_CASE("a missing number of key and value heads is the family's, and null one for each head") {
  for (const char* family : {"mistral", "ministral"}) {
    CHECK(parse_family(family, {{"num_attention_heads", 16}}).num_kv_heads == 8);
    CHECK(parse_family(family, {{"num_key_value_heads", nullptr}}).num_kv_heads == 4);
  }
  for (const char* family : {"qwen2", "qwen3"}) {
    CHECK(parse_family(family, {{"num_attention_heads", 64}, {"hidden_size", 128}}).num_kv_heads ==
          32);
    CHECK(parse_family(family, {{"num_key_value_heads", nullptr}}).num_kv_heads == 4);
  }
  CHECK(parse_family("llama").num_kv_heads == 4);
  const ModelSpec ernie =
      parse_family("ernie4_5", {{"num_key_value_heads", nullptr}, {"head_dim", nullptr}});
  CHECK(ernie.num_kv_heads == 4);
  CHECK(ernie.head_dim == 8);
}

TEST_CASE("seed_oss has biases of q, k and v, dropouts, and a padding row by default") {
  const ModelSpec spec = parse_family("seed_oss", {{"num_attention_heads", 8}});
  CHECK(spec.num_kv_heads == 8);
  CHECK(spec.head_dim == 128);
  CHECK(spec.max_positions == 524288);
  CHECK(spec.qkv_bias);
  CHECK_FALSE(spec.o_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK(spec.attention_dropout == 0.1);
  CHECK(spec.residual_dropout == 0.1);
  CHECK(spec.padding_token == 1);
  CHECK(parse_family("seed_oss", {{"num_attention_heads", 8}, {"pad_token_id", nullptr}})
            .padding_token == -1);
  const ModelSpec other = parse_family(
      "seed_oss",
      {{"num_key_value_heads", 2}, {"attention_bias", false}, {"attention_out_bias", true}});
  CHECK_FALSE(other.qkv_bias);
  CHECK(other.o_bias);
  ModelSpec dropped = spec;
  override_dropout(dropped, 0.25);
  CHECK(dropped.attention_dropout == 0.25);
  CHECK(dropped.residual_dropout == 0.25);
  CHECK(dropped.embedding_dropout == 0);
}

TEST_CASE("helium and ernie4_5 rotate interleaved pairs") {
  const ModelSpec helium =
      parse_family("helium", {{"num_attention_heads", 20}, {"hidden_size", 2560}});
  CHECK(helium.norm.product_in_fp32);
  CHECK(helium.rope.interleaved);
  CHECK(helium.rope.theta == 100000);
  CHECK(helium.num_kv_heads == 20);
  CHECK(helium.head_dim == 128);
  CHECK(helium.norm.eps == 1e-8);
  CHECK(helium.padding_token == 3);
  CHECK_FALSE(helium.qkv_bias);
  const json biases = {{"num_key_value_heads", 2}, {"head_dim", 8}, {"attention_bias", true}};
  CHECK(parse_family("helium", biases).qkv_bias);
  CHECK_FALSE(parse_family("helium", biases).o_bias);
  CHECK(refusal("helium", {{"num_key_value_heads", 2}, {"head_dim", 16}})
            .find("head_dim is 16, but 4 heads of it must make up hidden_size 32") !=
        std::string::npos);

  const ModelSpec ernie = parse_family("ernie4_5");
  CHECK(ernie.rope.interleaved);
  CHECK(ernie.rope.theta == 500000);
  CHECK(ernie.num_kv_heads == 2);
  CHECK(ernie.head_dim == 128);
  CHECK(ernie.norm.eps == 1e-5);
  CHECK(ernie.padding_token == 0);
  CHECK(ernie.tie_word_embeddings);
  CHECK_FALSE(ernie.o_bias);
  CHECK(ernie.attention_dropout == 0);
  CHECK(refusal("ernie4_5", {{"attention_dropout", 0.1}}).find("attention_dropout is 0.1") !=
        std::string::npos);
  const ModelSpec biased = parse_family("ernie4_5", {{"use_bias", true}, {"rope_theta", 100.0}});
  CHECK(biased.qkv_bias);
  CHECK(biased.o_bias);
  CHECK(biased.mlp_bias);
  CHECK(biased.rope.theta == 100);
}

TEST_CASE("granite has four factors, of which that of scores is 1 by default") {
  const ModelSpec spec = parse_family("granite");
  CHECK(spec.score_scale(0) == 1);
  CHECK(spec.embedding_multiplier == 1);
  CHECK(spec.residual_multiplier == 1);
  CHECK(spec.logits_multiplier == 1);
  const ModelSpec scaled = parse_family("granite", {{"embedding_multiplier", 12},
                                                    {"attention_multiplier", 0.25},
                                                    {"residual_multiplier", 0.22},
                                                    {"logits_scaling", 8}});
  CHECK(scaled.score_scale(2) == 0.25);
  CHECK(scaled.embedding_multiplier == 12);
  CHECK(scaled.residual_multiplier == 0.22);
  CHECK(scaled.logits_multiplier == 0.125);
  CHECK(refusal("llama", {{"logits_scaling", 8}}).find("logits_scaling") != std::string::npos);
}

TEST_CASE("arcee has a plain MLP with squared ReLU") {
  const ModelSpec spec = parse_family("arcee");
  CHECK(spec.activation == Activation::kReluSquared);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.max_positions == 4096);
}

TEST_CASE("apertus has a plain MLP with xIELU, and norms of q and k") {
  const ModelSpec spec = parse_family("apertus");
  CHECK(spec.activation == Activation::kXielu);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.qk_norm_spec.eps == 1e-5);
  CHECK(spec.max_positions == 65536);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 3);
  CHECK(spec.rope.scaling == RopeScaling::kLlama3);
  CHECK(spec.rope.theta == 12000000);
  CHECK(spec.rope.factor == 8);
  CHECK(spec.rope.original_max_positions == 8192);
  CHECK(spec.rope.low_freq_factor == 1);
  CHECK(spec.rope.high_freq_factor == 4);
  const ModelSpec other = parse_family("apertus", {{"num_key_value_heads", 2},
                                                   {"head_dim", 16},
                                                   {"rms_norm_eps", 1e-6},
                                                   {"attention_bias", true},
                                                   {"attention_dropout", 0.1},
                                                   {"hidden_act", "xielu"},
                                                   {"max_position_embeddings", 128},
                                                   {"rope_parameters", {{"rope_type", "default"}}},
                                                   {"qk_norm", true},
                                                   {"post_norm", false},
                                                   {"mlp_bias", false}});
  CHECK(other.num_kv_heads == 2);
  CHECK(other.head_dim == 16);
  CHECK(other.qk_norm_spec.eps == 1e-6);
  CHECK(other.qkv_bias);
  CHECK(other.o_bias);
  CHECK_FALSE(other.mlp_bias);
  CHECK(other.attention_dropout == 0.1);
  CHECK(other.rope.scaling == RopeScaling::kNone);
  CHECK(other.rope.theta == 12000000);
  CHECK(other.unknown_keys.empty());
  check_names(spec,
              {{"layers.2.attention_norm.weight", "model.layers.2.attention_layernorm.weight"},
               {"layers.2.mlp_norm.weight", "model.layers.2.feedforward_layernorm.weight"},
               {"layers.2.attention.q_norm.weight", "model.layers.2.self_attn.q_norm.weight"},
               {"layers.1.mlp.activation.alpha_p", "model.layers.1.mlp.act_fn.alpha_p"},
               {"layers.1.mlp.activation.eps", "model.layers.1.mlp.act_fn.eps"},
               {"layers.1.mlp.up.weight", "model.layers.1.mlp.up_proj.weight"}});
  check_refusals("apertus",
                 {{{{"hidden_act", "silu"}}, "hidden_act is \"silu\"; only \"xielu\" is"},
                  {{{"qk_norm", false}}, "qk_norm is false; only true is supported"},
                  {{{"post_norm", true}}, "post_norm is true, which is not supported"},
                  {{{"mlp_bias", true}}, "mlp_bias is true, which is not supported"},
                  {{{"sliding_window", 8}}, "sliding_window is 8"}});
  CHECK(refusal("arcee", {{"hidden_act", "xielu"}}).find("supported are silu") !=
        std::string::npos);
}

TEST_CASE("smollm3 has no rotary embeddings in every fourth layer, or in those of a list") {
  const json four = {{"num_hidden_layers", 4}};
  const ModelSpec spec = parse_family("smollm3", four);
  CHECK(ropes(spec) == "GGG-");
  CHECK(spec.rope.theta == 2000000);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.padding_token == -1);
  CHECK(ropes(parse_family("smollm3", {{"no_rope_layer_interval", 2}})) == "G-G");
  CHECK(ropes(parse_family("smollm3", {{"no_rope_layers", {0, 1, 0}}})) == "-G-");
  CHECK(refusal("smollm3", {{"no_rope_layers", {0, 2, 0}}}).find("supported are 0 and 1") !=
        std::string::npos);
  CHECK(refusal("smollm3", {{"no_rope_layers", {0}}}).find("one entry for each of the 3 layers") !=
        std::string::npos);
  CHECK(refusal("smollm3", {{"use_sliding_window", true}}).find("use_sliding_window") !=
        std::string::npos);
  CHECK(parse_family("smollm3",
                     {{"layer_types", {"full_attention", "full_attention", "full_attention"}}})
            .layer(0)
            .window == 0);
}

TEST_CASE("starcoder2 has LayerNorm, a plain MLP and biases everywhere") {
  const ModelSpec spec = parse_family("starcoder2");
  CHECK(spec.num_kv_heads == 2);
  CHECK(spec.max_positions == 4096);
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(windows(spec) == std::vector<int64_t>{0, 0, 0});
  CHECK(spec.initializer_range == 0.018042);
  CHECK(parse_family("starcoder2", {{"sliding_window", 7}}).layer(2).window == 7);
  const ModelSpec other = parse_family("starcoder2", {{"use_bias", false},
                                                      {"norm_epsilon", 1e-6},
                                                      {"residual_dropout", 0.2},
                                                      {"embedding_dropout", 0.3}});
  CHECK_FALSE(other.mlp_bias);
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.residual_dropout == 0.2);
  CHECK(other.embedding_dropout == 0.3);
  CHECK(stored_name(spec, "layers.1.mlp.up.bias") == "model.layers.1.mlp.c_fc.bias");
  CHECK(canonical_name(spec, "model.layers.1.mlp.c_proj.weight") == "layers.1.mlp.down.weight");
}

TEST_CASE("gpt_bigcode is GPT-2 with one key and value head, or with heads one by one") {
  const json sizes = {{"model_type", "gpt_bigcode"},
                      {"vocab_size", 64},
                      {"n_embd", 32},
                      {"n_layer", 3},
                      {"n_head", 4},
                      {"n_positions", 64}};
  const auto parse = [&](const json& changes = json::object()) {
    return parse_model_spec(with(sizes, changes).dump(), "config.json");
  };
  const ModelSpec spec = parse();
  CHECK(spec.num_kv_heads == 1);
  CHECK(spec.qkv_layout == QkvLayout::kStacked);
  CHECK(spec.intermediate_size == 128);
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.norm.bias);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK_FALSE(spec.conv1d);
  CHECK(spec.learned_positions);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == -1);
  CHECK(ropes(spec) == "---");
  CHECK(spec.attention_dropout == 0.1);
  CHECK(spec.residual_dropout == 0.1);
  CHECK(spec.embedding_dropout == 0.1);
  CHECK(spec.score_scale(2) == doctest::Approx(1 / std::sqrt(8.0)));
  const ModelSpec other = parse({{"multi_query", false},
                                 {"scale_attn_weights", false},
                                 {"n_inner", 40},
                                 {"activation_function", "relu"},
                                 {"attention_softmax_in_fp32", true},
                                 {"scale_attention_softmax_in_fp32", false}});
  CHECK(other.num_kv_heads == 4);
  CHECK(other.qkv_layout == QkvLayout::kGrouped);
  CHECK(other.score_scale(2) == 1);
  CHECK(other.intermediate_size == 40);
  CHECK(other.activation == Activation::kRelu);
  CHECK(other.unknown_keys.empty());
  check_names(spec, {{"embedding.positions", "transformer.wpe.weight"},
                     {"layers.2.attention.qkv.bias", "transformer.h.2.attn.c_attn.bias"},
                     {"layers.1.mlp.down.weight", "transformer.h.1.mlp.c_proj.weight"}});
  CHECK_THROWS_WITH_AS(parse({{"num_key_value_heads", 2}}),
                       doctest::Contains("num_key_value_heads is 2; only 1 is supported"), Error);
  CHECK_THROWS_WITH_AS(parse({{"add_cross_attention", true}}),
                       doctest::Contains("add_cross_attention is true"), Error);
}

TEST_CASE("minicpm3 has latent attention, and three factors") {
  const ModelSpec spec = parse_family("minicpm3", {{"num_hidden_layers", 4}});
  REQUIRE(spec.latent);
  CHECK(spec.latent->q_rank == 768);
  CHECK(spec.latent->kv_rank == 256);
  CHECK(spec.latent->v_dim == 8);  // of 32 for four heads
  CHECK(spec.head_dim == 64 + 32);
  CHECK(spec.rope.rotary_dim == 32);
  CHECK_FALSE(spec.rope.interleaved);
  CHECK(spec.num_kv_heads == 4);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.max_positions == 32768);
  CHECK(spec.tie_word_embeddings);
  CHECK_FALSE(spec.experts);
  CHECK(spec.padding_token == -1);
  CHECK(spec.score_scale(0) == doctest::Approx(1 / std::sqrt(96.0)));
  CHECK(spec.embedding_multiplier == 12);
  CHECK(spec.rounds_embedding_multiplier);
  CHECK(spec.residual_multiplier == doctest::Approx(0.7));
  CHECK(spec.logits_multiplier == 8);  // 256 / 32
  const ModelSpec other = parse_family("minicpm3", {{"q_lora_rank", nullptr},
                                                    {"v_head_dim", 16},
                                                    {"scale_emb", 2.5},
                                                    {"scale_depth", nullptr},
                                                    {"dim_model_base", nullptr},
                                                    {"attention_bias", true},
                                                    {"mlp_bias", true},
                                                    {"tie_word_embeddings", false}});
  CHECK(other.latent->q_rank == 0);
  CHECK(other.latent->v_dim == 16);
  CHECK(other.embedding_multiplier == 2.5);
  CHECK(other.residual_multiplier == 1);
  CHECK(other.logits_multiplier == 1);
  CHECK(other.qkv_bias);
  CHECK(other.mlp_bias);
  CHECK_FALSE(other.tie_word_embeddings);
  CHECK(other.unknown_keys.empty());
  check_names(spec, {{"layers.1.attention.latent.kv_a.weight",
                      "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"},
                     {"layers.1.mlp.gate.weight", "model.layers.1.mlp.gate_proj.weight"}});
  check_refusals(
      "minicpm3",
      {{{{"hidden_size", 30}}, "hidden_size is 30, not a multiple of num_attention_heads"},
       {{{"dim_model_base", 0}}, "dim_model_base is 0, expected more than 0"}});
}

TEST_CASE("keys that change every family are refused") {
  for (const std::string_view name : family_names()) {
    const std::string family(name);
    if (find_family(family) == nullptr) continue;  // a multimodal one
    check_refusals(
        family, {{{{"is_causal", false}}, "is_causal is false; only true is supported"},
                 {{{"per_layer_config", {{"1", {{"hidden_act", "relu"}}}}}}, "per_layer_config"},
                 {{{"add_cross_attention", true}}, "add_cross_attention is true"},
                 {{{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true"},
                 {{{"chunk_size_feed_forward", 8}}, "chunk_size_feed_forward is 8"}});
    if (family != "falcon") check_refusals(family, {{{{"alibi", true}}, "alibi is true"}});
  }
}

TEST_CASE("keys of other families stay refused") {
  CHECK(refusal("llama", {{"residual_dropout", 0.1}}).find("residual_dropout") !=
        std::string::npos);
  CHECK(refusal("seed_oss", {{"num_attention_heads", 8}, {"embedding_dropout", 0.1}})
            .find("embedding_dropout") != std::string::npos);
  CHECK(refusal("starcoder2", {{"layer_types", {"full_attention"}}}).find("layer_types") !=
        std::string::npos);
  CHECK(refusal("llama", {{"partial_rotary_factor", 0.5}})
            .find("partial_rotary_factor is 0.5, expected 1") != std::string::npos);
}

}  // namespace zeroth::model::families_test
