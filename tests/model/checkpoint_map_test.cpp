#include "model/hf/checkpoint_map.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/model/stacked_family.h"

namespace zeroth::model::checkpoint_map_test {
namespace {

ModelSpec family(const std::string& name) {
  ModelSpec spec;
  spec.family = name;
  return spec;
}

}  // namespace

TEST_CASE("names map to those of transformers and back") {
  const std::pair<const char*, const char*> llama[] = {
      {"embedding.weight", "model.embed_tokens.weight"},
      {"layers.12.attention_norm.weight", "model.layers.12.input_layernorm.weight"},
      {"layers.0.attention.q.bias", "model.layers.0.self_attn.q_proj.bias"},
      {"layers.0.attention.q_norm.weight", "model.layers.0.self_attn.q_norm.weight"},
      {"layers.3.mlp_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
      {"layers.3.mlp.down.weight", "model.layers.3.mlp.down_proj.weight"},
      {"head.norm.weight", "model.norm.weight"},
      {"head.weight", "lm_head.weight"}};
  for (const auto& [canonical, stored] : llama) {
    CHECK(stored_name(family("qwen3"), canonical) == stored);
    CHECK(canonical_name(family("qwen3"), stored) == canonical);
  }
  const std::pair<const char*, const char*> gpt2[] = {
      {"embedding.weight", "transformer.wte.weight"},
      {"embedding.positions", "transformer.wpe.weight"},
      {"layers.10.attention.qkv.bias", "transformer.h.10.attn.c_attn.bias"},
      {"layers.1.mlp.down.weight", "transformer.h.1.mlp.c_proj.weight"},
      {"head.norm.bias", "transformer.ln_f.bias"}};
  for (const auto& [canonical, stored] : gpt2) {
    CHECK(stored_name(family("gpt2"), canonical) == stored);
    CHECK(canonical_name(family("gpt2"), stored) == canonical);
  }
}

TEST_CASE("the prefix of the family may be absent") {
  CHECK(canonical_name(family("gpt2"), "h.1.ln_2.weight") == "layers.1.mlp_norm.weight");
  CHECK(canonical_name(family("llama"), "norm.weight") == "head.norm.weight");
}

TEST_CASE("names of no parameter map to nothing") {
  for (const char* name : {"score.weight", "model.layers.x.mlp.up_proj.weight",
                           "model.layers.1.mlp.router.weight", "model.norm", "wte.weight"}) {
    CHECK_FALSE(canonical_name(family("llama"), name));
  }
}

TEST_CASE("buffers of older files are known") {
  const Family &gpt2 = *find_family("gpt2"), &llama = *find_family("llama");
  CHECK(is_ignored_buffer(gpt2, "h.0.attn.bias"));
  CHECK(is_ignored_buffer(gpt2, "transformer.h.0.attn.masked_bias"));
  CHECK_FALSE(is_ignored_buffer(gpt2, "h.0.attn.c_attn.bias"));
  CHECK(is_ignored_buffer(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(is_ignored_buffer(llama, "h.0.attn.bias"));
}

TEST_CASE("a stacked parameter has a name of its own, and is saved as its entries' parts") {
  const Family family = stacked_family();
  const std::string gate_up = "layers.3.mlp.experts.gate_up", in_files = "model.layers.3.";
  CHECK(stored_name(family, gate_up) == in_files + "mlp.experts.gate_up_proj");
  CHECK(canonical_name(family, in_files + "mlp.experts.gate_up_proj") == gate_up);
  const std::vector<PlannedTensor> experts = stored_tensors(family, {gate_up, {2, 6, 5}});
  const std::string first = in_files + "block_sparse_moe.experts.0.",
                    second = in_files + "block_sparse_moe.experts.1.";
  REQUIRE(experts.size() == 4);
  const std::string names[] = {first + "w1.weight", first + "w3.weight", second + "w1.weight",
                               second + "w3.weight"};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(experts[i].name == names[i]);
    CHECK(experts[i].shape == std::vector<int64_t>{3, 5});
    CHECK(stored_piece(family, names[i]) == StoredPiece{gate_up, static_cast<int64_t>(i)});
    CHECK(stored_piece(family, names[i].substr(6)) ==
          StoredPiece{gate_up, static_cast<int64_t>(i)});
  }
  const auto norms = stored_tensors(family, {"layers.11.attention.q_norm.weight", {12, 4}});
  REQUIRE(norms.size() == 12);
  CHECK(norms[10].name == "model.layers.11.self_attn.q_layernorm.norms.10.weight");
  CHECK(norms[10].shape == std::vector<int64_t>{4});
  CHECK(stored_piece(family, norms[10].name) ==
        StoredPiece{"layers.11.attention.q_norm.weight", 10});
  const auto plain = stored_tensors(family, {"head.norm.weight", {5}});
  REQUIRE(plain.size() == 1);
  CHECK(plain[0].name == "model.norm.weight");
  CHECK(plain[0].shape == std::vector<int64_t>{5});
  CHECK_THROWS_AS(stored_tensors(family, {gate_up, {2, 5, 5}}), InternalError);  // no two halves
}

TEST_CASE("a family names its head, which has no prefix") {
  const Family family = stacked_family();
  for (const std::string parameter : {"weight", "bias"}) {
    CHECK(stored_name(family, "head." + parameter) == "embed_out." + parameter);
    CHECK(canonical_name(family, "embed_out." + parameter) == "head." + parameter);
    CHECK(canonical_name(*find_family("llama"), "lm_head." + parameter) == "head." + parameter);
    CHECK_FALSE(canonical_name(family, "model.embed_out." + parameter));
    CHECK_FALSE(canonical_name(family, "lm_head." + parameter));
  }
  CHECK_FALSE(canonical_name(family, "embed_out.norm.weight"));
}

TEST_CASE("tensors of later layers and with a family's prefixes are skipped") {
  const Family family = stacked_family();
  ModelSpec spec;
  spec.num_layers = 4;
  CHECK(skipped_prefix(family, spec, "model.layers.4.mlp.up.weight") == "model.layers.4.");
  CHECK(skipped_prefix(family, spec, "layers.61.eh_proj.weight") == "layers.61.");
  CHECK(skipped_prefix(family, spec, "mtp.layers.0.mlp.up.weight") == "mtp.");
  for (const char* name : {"model.layers.3.mlp.up.weight", "model.mtp.weight", "mtps.weight",
                           "model.layers.x.weight", "layer.7.weight", "model.layers.7"}) {
    CHECK_FALSE(skipped_prefix(family, spec, name));
  }
  CHECK_FALSE(skipped_prefix(*find_family("llama"), spec, "model.layers.4.mlp.up.weight"));
  CHECK_FALSE(skipped_prefix(*find_family("llama"), spec, "mtp.norm.weight"));
}

TEST_CASE("keys and values of layers that use those of others are skipped") {
  const Family& family = *find_family("gemma4_text");
  ModelSpec spec;
  spec.num_layers = 3;
  spec.layers.resize(3);
  spec.layers[2].kv_layer = 1;
  for (const std::string name : {"self_attn.k_proj.weight", "self_attn.k_norm.weight"})
    CHECK(skipped_prefix(family, spec, "model.layers.2." + name) == "layers.*.self_attn.k_");
  CHECK(skipped_prefix(family, spec, "model.layers.2.self_attn.v_proj.weight") ==
        "layers.*.self_attn.v_");
  for (const char* name :
       {"model.layers.1.self_attn.k_proj.weight", "model.layers.2.self_attn.q_proj.weight",
        "model.layers.3.mlp.up.weight"})
    CHECK_FALSE(skipped_prefix(family, spec, name));
}

TEST_CASE("only full names are pieces or stacked parameters") {
  const Family family = stacked_family();
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  for (const char* name : {"0.w1.weight_scale", "0.w1.bias", "00.w1.weight", "01.w1.weight",
                           "-1.w1.weight", "x.w1.weight", ".w1.weight", "99999999999.w1.weight"}) {
    CHECK_FALSE(stored_piece(family, experts + name));
  }
  CHECK_FALSE(canonical_name(family, "model.layers.0.mlp.experts.gate_up_proj_blocks"));
  CHECK_FALSE(canonical_name(family, "model.layers.0.mlp.experts.gate_up_proj.weight"));
  CHECK_FALSE(canonical_name(family, "model.layers.00.mlp.experts.gate_up_proj"));
  CHECK_FALSE(stored_piece(*find_family("llama"), experts + "0.w1.weight"));
}

}  // namespace zeroth::model::checkpoint_map_test
