#include "model/blocks/build_blocks.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/model/chain_variants.h"
#include "tests/model/materialize.h"

namespace zeroth::model::build_blocks_test {
namespace {

std::set<std::string> names(const Blocks& blocks) {
  std::set<std::string> result;
  for (const auto& block : blocks) {
    for (const auto& item : block->named_parameters()) {
      CHECK(item.value().is_meta());
      CHECK(item.value().requires_grad());
      result.insert(block->label() + "." + item.key());
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a chain is embedding, layers, head; parameters have canonical names and no memory") {
  const Blocks blocks = build_blocks(read_model_spec(fixture("qwen3_tied")));
  REQUIRE(blocks.size() == 4);
  CHECK(blocks[0]->label() == "embedding");
  CHECK(blocks[2]->label() == "layers.1");
  CHECK(blocks[3]->label() == "head");
  const auto found = names(blocks);
  CHECK(found.size() == 2 * 11 + 3);
  for (const char* name : {"embedding.weight", "layers.0.attention_norm.weight",
                           "layers.0.attention.q.weight", "layers.1.attention.k_norm.weight",
                           "layers.1.attention.o.weight", "layers.1.mlp_norm.weight",
                           "layers.1.mlp.gate.weight", "head.norm.weight", "head.weight"}) {
    CHECK_MESSAGE(found.contains(name), name);
  }
}

TEST_CASE("GPT-2 has fused, biased products and positions") {
  const auto found = names(build_blocks(read_model_spec(fixture("gpt2"))));
  CHECK(found.size() == 2 + 2 * 12 + 3);
  for (const char* name : {"embedding.positions", "layers.0.attention.qkv.bias",
                           "layers.1.mlp.up.weight", "head.norm.bias"}) {
    CHECK_MESSAGE(found.contains(name), name);
  }
}

TEST_CASE("a tied weight is one tensor, an untied one is not") {
  for (const std::string name : {"qwen3_tied", "llama"}) {
    const Blocks blocks = build_blocks(read_model_spec(fixture(name)));
    const bool same = blocks.front()->named_parameters()["weight"].is_same(
        blocks.back()->named_parameters()["weight"]);
    CHECK(same == (name == "qwen3_tied"));
  }
}

TEST_CASE("ranks can split a model if they can split each layer and each table") {
  ModelSpec spec = chain_variant("gemma4_text");
  CHECK_NOTHROW(require_divisible(spec, 4));
  const auto refusal = [&] {
    try {
      require_divisible(spec, 4);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  spec.per_layer_input->vocab_size = 9;
  CHECK(refusal().find("9 tokens of the vocabulary leave a rank without any") != std::string::npos);
  spec.per_layer_input->vocab_size = 67;
  spec.layers[1].num_kv_heads = 3;
  CHECK(refusal().find("3 key/value heads are neither a multiple") != std::string::npos);
  spec.layers[1].num_kv_heads = 1;
  spec.quantization = QuantizationSpec{};
  spec.hidden_size = 64;
  spec.intermediate_size = 256;
  spec.head_dim = 64;
  CHECK(refusal().find("8 inputs of o_proj on a rank are no multiple") != std::string::npos);
  spec.layers[1].head_dim = spec.layers[2].head_dim = 128;
  CHECK(refusal().empty());
}

}  // namespace zeroth::model::build_blocks_test
