#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/spec.h"
#include "tests/model/materialize.h"

namespace zeroth::model::spec_read_test {
namespace {

using nlohmann::json;

json llama() {
  return {{"model_type", "llama"},   {"vocab_size", 64},         {"hidden_size", 32},
          {"num_hidden_layers", 3},  {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"intermediate_size", 48}, {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 128}};
}

json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 64}, {"n_embd", 32},
          {"n_layer", 2},         {"n_head", 4},      {"n_positions", 64},
          {"attn_pdrop", 0.0},    {"resid_pdrop", 0}, {"embd_pdrop", 0}};
}

ModelSpec parse(const json& base, const json& changes) {
  json config = base;
  config.merge_patch(changes);
  return parse_model_spec(config.dump(), "config.json");
}

std::string refusal(const json& base, const json& changes) {
  try {
    json config = base;
    config.update(changes);
    parse_model_spec(config.dump(), "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a Llama config gives a gated, bias-free layer with rotary embeddings") {
  const ModelSpec spec = parse(llama(), json::object());
  CHECK(spec.head_dim == 8);
  CHECK(spec.num_kv_heads == 2);
  CHECK(spec.norm.kind == NormKind::kRms);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(spec.gated_mlp);
  CHECK_FALSE(spec.qkv_bias);
  CHECK_FALSE(spec.tie_word_embeddings);
  CHECK(spec.rope.theta == 10000);
  CHECK(spec.layer(2).window == 0);
  CHECK(spec.unknown_keys.empty());
}

TEST_CASE("a multimodal model's text_config describes its language model") {
  json text = llama();
  text["model_type"] = "mistral";
  const json whole = {{"model_type", "mistral3"},
                      {"dtype", "bfloat16"},
                      {"vision_config", {{"hidden_size", 8}}},
                      {"vision_feature_layer", -1},
                      {"text_config", text}};
  const ModelSpec spec = parse(whole, json::object());
  CHECK(spec.family == "mistral");
  REQUIRE(spec.multimodal);
  CHECK(spec.multimodal->model_type == "mistral3");
  CHECK(spec.hidden_size == 32);
  CHECK(spec.dtype == "bfloat16");
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.unknown_keys.empty());
  CHECK_FALSE(parse(whole, {{"tie_word_embeddings", false}}).tie_word_embeddings);
  CHECK(parse(whole, {{"text_config", {{"model_type", nullptr}}}}).family == "mistral");
  const json older = {{"dtype", nullptr}, {"text_config", {{"torch_dtype", "float16"}, {"x", 1}}}};
  CHECK(parse(whole, older).dtype == "float16");
  CHECK(parse(whole, older).unknown_keys == std::vector<std::string>{"text_config.x"});
  const auto refused = [&](json changes) { return refusal(whole, changes); };
  CHECK(refused({{"text_config", nullptr}}) == "config.json: text_config is missing");
  text["model_type"] = "llama";
  CHECK(refused({{"text_config", text}})
            .starts_with("config.json: model_type is \"llama\" in text_config of \"mistral3\"; "
                         "supported are apertus, arcee, "));
  CHECK(refused({{"text_config", text}}).find("mistral, mistral3, mixtral, ") != std::string::npos);
  CHECK(refused({{"quantization_config", {{"quant_method", "fp8"}}}})
            .find("quantization_config is {") != std::string::npos);
  text["model_type"] = "mistral";
  text.erase("vocab_size");
  CHECK(refused({{"text_config", text}}).find("text_config.vocab_size is missing") !=
        std::string::npos);
}

TEST_CASE("a GPT-2 config gives LayerNorm, Conv1D products and trained positions") {
  const ModelSpec spec = parse(gpt2(), json::object());
  CHECK(spec.norm.kind == NormKind::kLayer);
  CHECK(spec.intermediate_size == 128);
  CHECK(spec.conv1d);
  CHECK(spec.learned_positions);
  CHECK(spec.qkv_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.tie_word_embeddings);
  CHECK(spec.activation == Activation::kGeluTanh);
}

TEST_CASE("a window holds in all layers of Mistral and in the upper ones of Qwen") {
  const ModelSpec mistral = parse(llama(), {{"model_type", "mistral"}, {"sliding_window", 7}});
  CHECK(mistral.layer(0).window == 7);
  json none = llama();
  none["model_type"] = "mistral";
  none["sliding_window"] = nullptr;
  CHECK(parse_model_spec(none.dump(), "").layer(0).window == 0);

  json qwen = {{"model_type", "qwen2"}, {"sliding_window", 7}, {"max_window_layers", 1}};
  CHECK(parse(llama(), qwen).layer(2).window == 0);
  qwen["use_sliding_window"] = true;
  CHECK(parse(llama(), qwen).layer(0).window == 0);
  CHECK(parse(llama(), qwen).layer(1).window == 7);
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  CHECK(parse(llama(), qwen).layer(0).window == 7);
  CHECK(parse(llama(), qwen).layer(1).window == 0);
}

TEST_CASE("keys that would change the computation are refused by name and value") {
  const std::pair<json, std::string> cases[] = {
      {{{"rope_scaling", {{"type", "su"}, {"factor", 4.0}}}}, "rope_scaling.rope_type is \"su\""},
      {{{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling.factor is missing"},
      {{{"rope_scaling", 3}}, "rope_scaling is 3, expected an object"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"},
      {{{"hidden_act", "mish"}}, "hidden_act is \"mish\""},
      {{{"attention_dropout", 1.0}}, "attention_dropout is 1, expected 0 <= p < 1"},
      {{{"resid_pdrop", 0.1}}, "resid_pdrop is 0.1"},
      {{{"logits_scaling", 2}}, "logits_scaling is 2"},
      {{{"sliding_window", 16}}, "sliding_window is 16"},
      {{{"num_local_experts", 8}}, "num_local_experts is 8"},
      {{{"hidden_size", 0}}, "hidden_size is 0, expected a whole number"},
      {{{"hidden_size", 34}}, "hidden_size is 34, not a multiple of num_attention_heads 4"},
      {{{"num_key_value_heads", 3}}, "num_attention_heads is 4, not a multiple"},
      {{{"head_dim", 7}}, "head_dim is 7"},
      {{{"num_hidden_layers", 10'000'000}}, "num_hidden_layers is 10000000, expected at most 1024"},
      {{{"hidden_size", 1e18}}, "hidden_size is 1e+18, expected at most 1048576"},
      {{{"num_attention_heads", 1 << 20}, {"head_dim", 1 << 20}}, "1048576 x head_dim 1048576"},
      {{{"vocab_size", 1e12}}, "vocab_size is 1000000000000.0, expected at most 16777216"},
      {{{"max_position_embeddings", 1e300}}, "max_position_embeddings is 1e+300"},
      {{{"rope_scaling", {{"rope_type", std::string(9000, 'y')}}}}, "... (9000 bytes)"},
      {{{"num_hidden_layers", "two"}}, "num_hidden_layers is \"two\", expected a number"},
      {{{"vocab_size", nullptr}}, "vocab_size is missing"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1, expected true or false"},
      {{{"model_type", "mamba"}}, "model_type is \"mamba\"; supported are apertus, arcee"},
      {{{"model_type", "mamba"}},
       "starcoder2; for another kind of model see examples/custom_model"},
      {{{"model_type", nullptr}}, "model_type is missing: add it, as \"architectures\" says"},
      {{{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}},
       "layer_types does not have one"},
      {{{"model_type", "mistral"}, {"mlp_bias", true}}, "mlp_bias is true"},
  };
  for (const auto& [changes, message] : cases) {
    const std::string said = refusal(llama(), changes);
    CHECK_MESSAGE(said.find(message) != std::string::npos, message << " | " << said);
  }
  const std::pair<json, std::string> gpt2_cases[] = {
      {{{"scale_attn_by_inverse_layer_idx", 1}},
       "scale_attn_by_inverse_layer_idx is 1, expected true"},
      {{{"reorder_and_upcast_attn", true}}, "reorder_and_upcast_attn is true"},
      {{{"add_cross_attention", true}}, "add_cross_attention is true"},
      {{{"resid_pdrop", -0.1}}, "resid_pdrop is -0.1, expected 0 <= p < 1"},
      {{{"attention_dropout", 0.1}}, "attention_dropout is 0.1"},
      {{{"n_embd", 30}}, "n_embd is 30, not a multiple of n_head 4"},
  };
  for (const auto& [changes, message] : gpt2_cases) {
    const std::string said = refusal(gpt2(), changes);
    CHECK_MESSAGE(said.find(message) != std::string::npos, message << " | " << said);
  }
}

TEST_CASE("dropout is read, absent from GPT-2's it is 0.1, absent from others' it is 0") {
  json config = gpt2();
  config.erase("attn_pdrop");
  config["resid_pdrop"] = 0.25;
  const ModelSpec spec = parse_model_spec(config.dump(), "config.json");
  CHECK(spec.attention_dropout == 0.1);
  CHECK(spec.residual_dropout == 0.25);
  CHECK(spec.embedding_dropout == 0);
  CHECK(parse_model_spec(llama().dump(), "config.json").attention_dropout == 0);
  json dropping = llama();
  dropping["attention_dropout"] = 0.5;
  CHECK(parse_model_spec(dropping.dump(), "config.json").attention_dropout == 0.5);
}

TEST_CASE("pad_token_id: read as nn.Embedding reads it, missing it is none, GPT-2 has none") {
  const auto token = [](const json& base, const json& value) {
    json config = base;
    config["pad_token_id"] = value;
    return parse_model_spec(config.dump(), "config.json").padding_token;
  };
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    json config = llama();
    config["model_type"] = family;
    CHECK(parse_model_spec(config.dump(), "config.json").padding_token == -1);
    CHECK(token(config, nullptr) == -1);
    CHECK(token(config, 0) == 0);
    CHECK(token(config, 63) == 63);
    CHECK(token(config, -1) == 63);
    CHECK(token(config, -64) == 0);
  }
  CHECK(token(gpt2(), 5) == -1);
  CHECK(token(gpt2(), 64) == -1);
  const std::string expected = ", expected null or a whole number from -64 to 63";
  for (const json& wrong : {json(64), json(-65), json(1.0), json(true), json("3"), json({3}),
                            json(INT64_MIN), json(UINT64_MAX), json(1e300)}) {
    const std::string said = refusal(llama(), {{"pad_token_id", wrong}});
    CAPTURE(said);
    CHECK(said.find("pad_token_id is " + wrong.dump() + expected) != std::string::npos);
  }
}

TEST_CASE("all complaints come together") {
  const std::string said =
      refusal(llama(), {{"hidden_act", "mish"}, {"logits_scaling", 2}, {"vocab_size", -1}});
  CHECK(said.find("hidden_act") != std::string::npos);
  CHECK(said.find("logits_scaling") != std::string::npos);
  CHECK(said.find("vocab_size") != std::string::npos);
}

TEST_CASE("keys without known influence are collected") {
  const ModelSpec spec =
      parse(llama(), {{"my_note", "x"},
                      {"use_cache", true},
                      {"pretraining_tp", 2},
                      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"taste", 1}}}});
  CHECK(spec.unknown_keys == std::vector<std::string>{"rope_scaling.taste", "my_note"});
}

TEST_CASE(
    "a window that begins behind the last layer is none, one before the first is everywhere") {
  for (const double first : {-5.0, 1e300}) {
    const ModelSpec spec = parse(llama(), {{"model_type", "qwen2"},
                                           {"use_sliding_window", true},
                                           {"sliding_window", 7},
                                           {"max_window_layers", first}});
    for (const LayerSpec& layer : spec.layers) CHECK(layer.window == (first < 0 ? 7 : 0));
  }
}

TEST_CASE("of many complaints some are listed and the others counted") {
  json changes = {{"model_type", "qwen2"}, {"num_hidden_layers", 1000}};
  for (int i = 0; i < 1000; ++i) changes["layer_types"].push_back("strange");
  const std::string said = refusal(llama(), changes);
  CHECK(said.find("\n  and 980 more") != std::string::npos);
}

TEST_CASE("a missing or malformed config.json is named") {
  CHECK_THROWS_WITH_AS(read_model_spec("/nowhere"),
                       "/nowhere/config.json cannot be read: a model folder needs a config.json; "
                       "there is no such folder",
                       Error);
  CHECK_THROWS_WITH_AS(parse_model_spec("{", "config.json"),
                       "config.json:1:1: not JSON: it ends here, expected a key or '}'", Error);
  CHECK_THROWS_WITH_AS(parse_model_spec("[1]", "config.json"), "config.json is not a JSON object",
                       Error);
}

}  // namespace zeroth::model::spec_read_test
