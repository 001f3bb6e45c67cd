#include "model/hf/checkpoint_map.h"

#include <doctest/doctest.h>

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
  CHECK(is_ignored_buffer(family("gpt2"), "h.0.attn.bias"));
  CHECK(is_ignored_buffer(family("gpt2"), "transformer.h.0.attn.masked_bias"));
  CHECK_FALSE(is_ignored_buffer(family("gpt2"), "h.0.attn.c_attn.bias"));
  CHECK(is_ignored_buffer(family("llama"), "model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(is_ignored_buffer(family("llama"), "h.0.attn.bias"));
}

}  // namespace zeroth::model::checkpoint_map_test
