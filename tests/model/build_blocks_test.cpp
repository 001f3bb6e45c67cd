#include "model/blocks/build_blocks.h"

#include <doctest/doctest.h>

#include <set>

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

}  // namespace zeroth::model::build_blocks_test
