// What the family with short convolutions reads of its config.json.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_conv_test {
namespace {

using nlohmann::json;

// Returns the spec of a config.json with the keys alone that have no default, and changes.
ModelSpec parse(const json& changes = json::object()) {
  return parse_family("lfm2", with({{"num_attention_heads", 8}}, changes));
}

// Returns a letter for each layer: A for attention, C for a convolution.
std::string mixers(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers)
    text += layer.mixer == LayerMixer::kAttention ? 'A' : 'C';
  return text;
}

}  // namespace

TEST_CASE("lfm2 has norms of q and k, and a size of its MLP that is adjusted") {
  const ModelSpec spec = parse();
  CHECK(spec.num_kv_heads == 8);
  CHECK(spec.head_dim == 4);
  CHECK(spec.max_positions == 128000);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK(spec.activation == Activation::kSilu);
  CHECK(spec.gated_mlp);
  CHECK(spec.rope.theta == 1000000);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.padding_token == 0);
  REQUIRE(spec.short_conv);
  CHECK(spec.short_conv->kernel_size == 3);
  CHECK_FALSE(spec.short_conv->bias);
  CHECK(spec.intermediate_size == 256);  // two thirds of 48, up to a multiple of 256
  const auto mlp_size = [](const json& changes) { return parse(changes).intermediate_size; };
  CHECK(mlp_size({{"block_multiple_of", 20}}) == 40);
  CHECK(mlp_size({{"block_multiple_of", 20}, {"block_ffn_dim_multiplier", 1.3}}) == 60);
  CHECK(mlp_size({{"block_ffn_dim_multiplier", nullptr}}) == 32);
  CHECK(mlp_size({{"block_auto_adjust_ff_dim", false}}) == 48);
  // An older name, which transformers prefers.
  const json old = {
      {"intermediate_size", nullptr}, {"block_ff_dim", 50}, {"block_auto_adjust_ff_dim", false}};
  CHECK(mlp_size(old) == 50);
  const ModelSpec other = parse({{"num_key_value_heads", 2},
                                 {"head_dim", 16},
                                 {"norm_eps", 1e-6},
                                 {"conv_L_cache", 4},
                                 {"conv_bias", true},
                                 {"rope_theta", 500},
                                 {"tie_embedding", false},
                                 {"pad_token_id", 5},
                                 {"block_dim", 32},
                                 {"conv_dim", 32},
                                 {"conv_dim_out", 32},
                                 {"num_heads", 8},
                                 {"use_pos_enc", true},
                                 {"block_use_swiglu", true},
                                 {"block_norm_eps", 1e-5},
                                 {"block_mlp_init_scale", 1.0},
                                 {"block_out_init_scale", 1.0},
                                 {"block_use_xavier_init", true},
                                 {"conv_use_xavier_init", true}});
  CHECK(other.num_kv_heads == 2);
  CHECK(other.head_dim == 16);
  CHECK(other.norm.eps == 1e-6);
  CHECK(other.qk_norm_spec.eps == 1e-6);
  CHECK(other.short_conv->kernel_size == 4);
  CHECK(other.short_conv->bias);
  CHECK(other.rope.theta == 500);
  CHECK_FALSE(other.tie_word_embeddings);
  CHECK(other.padding_token == 5);
  CHECK(other.unknown_keys.empty());
}

TEST_CASE("lfm2 has attention in the layers that a list names, and else in all of them") {
  CHECK(mixers(parse()) == "AAA");
  CHECK(mixers(parse({{"full_attn_idxs", {1}}})) == "CAC");
  CHECK(mixers(parse({{"full_attn_idxs", json::array()}})) == "CCC");
  CHECK(mixers(parse({{"full_attn_idxs", nullptr}})) == "AAA");
  const json types = {"conv", "full_attention", "conv"};
  CHECK(mixers(parse({{"layer_types", types}})) == "CAC");
  CHECK(mixers(parse({{"layer_types", types}, {"full_attn_idxs", {0}}})) == "CAC");
}

TEST_CASE("lfm2 has names of its own, and keys that are refused") {
  check_names(parse({{"full_attn_idxs", {1}}}),
              {{"layers.2.attention_norm.weight", "model.layers.2.operator_norm.weight"},
               {"layers.2.mlp_norm.weight", "model.layers.2.ffn_norm.weight"},
               {"layers.2.conv.in.bias", "model.layers.2.conv.in_proj.bias"},
               {"layers.2.conv.depthwise.weight", "model.layers.2.conv.conv.weight"},
               {"layers.2.conv.out.weight", "model.layers.2.conv.out_proj.weight"},
               {"layers.1.attention.q.weight", "model.layers.1.self_attn.q_proj.weight"},
               {"layers.1.attention.q_norm.weight", "model.layers.1.self_attn.q_layernorm.weight"},
               {"layers.1.attention.o.weight", "model.layers.1.self_attn.out_proj.weight"},
               {"layers.0.mlp.gate.weight", "model.layers.0.feed_forward.w1.weight"},
               {"layers.0.mlp.up.weight", "model.layers.0.feed_forward.w3.weight"},
               {"layers.0.mlp.down.weight", "model.layers.0.feed_forward.w2.weight"},
               {"head.norm.weight", "model.embedding_norm.weight"}});
  const auto refused = [](json changes, const std::string& text) {
    changes["num_attention_heads"] = 8;
    check_refusals("lfm2", {{changes, text}});
  };
  refused({{"intermediate_size", nullptr}}, "intermediate_size is missing");
  refused({{"block_ff_dim", 50}}, "intermediate_size is 48; only 50 is supported");
  refused({{"block_ffn_dim_multiplier", 1e9}},
          "block_ffn_dim_multiplier is 1000000000, which makes an MLP of 32000000000");
  refused({{"block_ffn_dim_multiplier", 0}}, "block_ffn_dim_multiplier is 0, expected more than 0");
  refused({{"layer_types", {"conv", "sliding_attention", "conv"}}},
          "layer_types has \"sliding_attention\"; supported are conv, full_attention");
  refused({{"layer_types", {"conv"}}}, "layer_types does not have one entry for each of the 3");
  refused({{"full_attn_idxs", {3}}}, "expected a list of layers from 0 to 2");
  refused({{"conv_L_cache", 0}}, "conv_L_cache is 0, expected a whole number of at least 1");
  refused({{"attention_dropout", 0.1}}, "attention_dropout is 0.1, which is not supported");
  refused({{"block_dim", 64}}, "block_dim is 64; only 32 is supported");
  refused({{"conv_dim", 64}}, "conv_dim is 64; only 32 is supported");
  refused({{"conv_dim_out", 64}}, "conv_dim_out is 64; only 32 is supported");
  refused({{"num_heads", 4}}, "num_heads is 4; only 8 is supported");
  refused({{"use_pos_enc", false}}, "use_pos_enc is false; only true is supported");
  refused({{"block_use_swiglu", false}}, "block_use_swiglu is false; only true is supported");
  refused({{"sliding_window", 8}}, "sliding_window is 8");
}

}  // namespace zeroth::model::families_conv_test
