// What each family reads of its config.json, and how its files name parameters.
#include "model/hf/families/family.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/hf/checkpoint_map.h"
#include "model/spec.h"

namespace zeroth::model::families_test {
namespace {

using nlohmann::json;

// A config.json with the keys alone that have no default.
json smallest(const std::string& family) {
  return {{"model_type", family},   {"vocab_size", 64},        {"hidden_size", 32},
          {"num_hidden_layers", 3}, {"intermediate_size", 48}, {"num_attention_heads", 4}};
}

ModelSpec parse(json config, const json& changes = json::object()) {
  config.merge_patch(changes);
  return parse_model_spec(config.dump(), "config.json");
}

std::string refusal(const std::string& family, const json& changes) {
  try {
    json config = smallest(family);
    config.update(changes);  // null stays
    parse_model_spec(config.dump(), "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("families are found by model_type, and listed in messages") {
  CHECK(find_family("qwen3")->model_type == "qwen3");
  CHECK(find_family("phi3") == nullptr);
  CHECK(family_names() == "llama, mistral, ministral, qwen2, qwen3, seed_oss, starcoder2, gpt2");
  CHECK(refusal("phi3", json::object())
            .find("model_type is \"phi3\"; supported are llama, mistral, ") != std::string::npos);
}

TEST_CASE("ministral is Mistral with a window in the layers that layer_types names") {
  const ModelSpec spec = parse(smallest("ministral"));
  CHECK(spec.sliding_window == 4096);
  CHECK(spec.windowed_layers == std::vector<bool>{true, true, true});
  CHECK(spec.max_positions == 131072);
  const json types = {"full_attention", "sliding_attention", "full_attention"};
  CHECK(parse(smallest("ministral"), {{"layer_types", types}}).windowed_layers ==
        std::vector<bool>{false, true, false});
  CHECK(refusal("mistral", {{"layer_types", types}}).find("layer_types") != std::string::npos);
  json off = smallest("ministral");
  off["sliding_window"] = nullptr;
  CHECK(parse_model_spec(off.dump(), "config.json").sliding_window == 0);
}

TEST_CASE("seed_oss has biases of q, k and v, dropouts, and a padding row by default") {
  const ModelSpec spec = parse(smallest("seed_oss"), {{"num_attention_heads", 8}});
  CHECK(spec.num_kv_heads == 8);
  CHECK(spec.head_dim == 128);
  CHECK(spec.max_positions == 524288);
  CHECK(spec.qkv_bias);
  CHECK_FALSE(spec.o_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK(spec.attention_dropout == 0.1);
  CHECK(spec.residual_dropout == 0.1);
  CHECK(spec.padding_token == 1);
  json unpadded = smallest("seed_oss");
  unpadded.update({{"num_attention_heads", 8}, {"pad_token_id", nullptr}});
  CHECK(parse_model_spec(unpadded.dump(), "config.json").padding_token == -1);
  const ModelSpec other =
      parse(smallest("seed_oss"),
            {{"num_key_value_heads", 2}, {"attention_bias", false}, {"attention_out_bias", true}});
  CHECK_FALSE(other.qkv_bias);
  CHECK(other.o_bias);
  ModelSpec dropped = spec;
  override_dropout(dropped, 0.25);
  CHECK(dropped.attention_dropout == 0.25);
  CHECK(dropped.residual_dropout == 0.25);
  CHECK(dropped.embedding_dropout == 0);
}

TEST_CASE("starcoder2 has LayerNorm, a plain MLP and biases everywhere") {
  const ModelSpec spec = parse(smallest("starcoder2"));
  CHECK(spec.num_kv_heads == 2);
  CHECK(spec.max_positions == 4096);
  CHECK(spec.norm == NormKind::kLayer);
  CHECK(spec.norm_eps == 1e-5);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.sliding_window == 0);
  CHECK(spec.initializer_range == 0.018042);
  CHECK(parse(smallest("starcoder2"), {{"sliding_window", 7}}).layer_window(2) == 7);
  const ModelSpec other = parse(smallest("starcoder2"), {{"use_bias", false},
                                                         {"norm_epsilon", 1e-6},
                                                         {"residual_dropout", 0.2},
                                                         {"embedding_dropout", 0.3}});
  CHECK_FALSE(other.mlp_bias);
  CHECK(other.norm_eps == 1e-6);
  CHECK(other.residual_dropout == 0.2);
  CHECK(other.embedding_dropout == 0.3);
  CHECK(stored_name(spec, "layers.1.mlp.up.bias") == "model.layers.1.mlp.c_fc.bias");
  CHECK(canonical_name(spec, "model.layers.1.mlp.c_proj.weight") == "layers.1.mlp.down.weight");
}

TEST_CASE("keys of other families stay refused") {
  CHECK(refusal("llama", {{"residual_dropout", 0.1}}).find("residual_dropout") !=
        std::string::npos);
  CHECK(refusal("seed_oss", {{"num_attention_heads", 8}, {"embedding_dropout", 0.1}})
            .find("embedding_dropout") != std::string::npos);
  CHECK(refusal("starcoder2", {{"layer_types", {"full_attention"}}}).find("layer_types") !=
        std::string::npos);
}

}  // namespace zeroth::model::families_test
