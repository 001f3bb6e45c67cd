#include "model/spec.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::model::spec_test {

TEST_CASE("without records all layers are alike") {
  ModelSpec spec;
  spec.num_layers = 2;
  CHECK(spec.layer(1) == LayerSpec());
  spec.layers = {{.window = 9}, {}};
  CHECK(spec.layer(0).window == 9);
  CHECK(spec.layer(1).window == 0);
  CHECK_THROWS_AS(spec.layer(2), InternalError);
}

TEST_CASE("scores are scaled by the width of a head, or by what the layer's record says") {
  ModelSpec spec;
  spec.num_layers = 2;
  spec.head_dim = 16;
  CHECK(spec.score_scale(1) == 0.25);
  spec.layers = {{}, {.score_scale = 0.3}};
  CHECK(spec.score_scale(0) == 0.25);
  CHECK(spec.score_scale(1) == 0.3);
}

TEST_CASE("a layer's MLP has the model's size, or its own") {
  ModelSpec spec;
  spec.num_layers = 2;
  spec.intermediate_size = 24;
  spec.layers = {{}, {.intermediate_size = 40}};
  CHECK(spec.mlp_size(0) == 24);
  CHECK(spec.mlp_size(1) == 40);
}

TEST_CASE("an override sets the dropouts that the family has") {
  ModelSpec spec;
  spec.family = "llama";
  override_dropout(spec, 0.2);
  CHECK(spec.attention_dropout == 0.2);
  CHECK(spec.residual_dropout == 0);
  spec.family = "gpt2";
  override_dropout(spec, 0.3);
  CHECK(spec.attention_dropout == 0.3);
  CHECK(spec.residual_dropout == 0.3);
  CHECK(spec.embedding_dropout == 0.3);
  CHECK_THROWS_AS(override_dropout(spec, 1), Error);
  CHECK_THROWS_AS(override_dropout(spec, -0.1), Error);
}

namespace {

ModelSpec llama() {
  ModelSpec spec;
  spec.vocab_size = 100;
  spec.hidden_size = 8;
  spec.intermediate_size = 20;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 3;
  return spec;
}

}  // namespace

TEST_CASE("a token costs six operations per product weight and twelve per channel that it sees") {
  const double weights = 2 * (8 * 12 + 2 * 8 * 6 + 12 * 8 + 3 * 8 * 20) + 100 * 8;
  CHECK(flops_per_token(llama(), 1) == 6 * weights + 12 * 12 * 2);
  // of 5 tokens each sees 3 on average
  CHECK(flops_per_token(llama(), 5) == 6 * weights + 12 * 12 * (3 + 3));
}

TEST_CASE("a window bounds what a token sees, in its layers only") {
  ModelSpec spec = llama();
  const double whole = flops_per_token(spec, 5);
  spec.layers = {{.window = 2}, {}};  // 1, 2, 2, 2, 2 seen: 1.8 in place of 3
  CHECK(flops_per_token(spec, 5) == doctest::Approx(whole - 12 * 12 * 1.2));
  spec.layers[0].window = 5;
  CHECK(flops_per_token(spec, 5) == whole);
}

TEST_CASE("a token sees those of its chunk") {
  ModelSpec spec = llama();
  const double whole = flops_per_token(spec, 5);
  spec.layers = {{.chunk = 3}, {}};  // 1, 2, 3, 1, 2 seen: 1.8 in place of 3
  CHECK(flops_per_token(spec, 5) == doctest::Approx(whole - 12 * 12 * 1.2));
}

TEST_CASE("of a layer's experts those count that a token passes") {
  ModelSpec spec = llama();
  const double dense = flops_per_token(spec, 1);
  spec.experts = ExpertsSpec{.num_experts = 7,
                             .top_k = 2,
                             .intermediate_size = 5,
                             .shared_intermediate_size = 6,
                             .shared_gate = true};
  spec.layers = {{.experts = true}, {}};
  const double weights = 3 * 8 * (2 * 5 + 6) + 8 * 7 + 8;
  CHECK(flops_per_token(spec, 1) == doctest::Approx(dense + 6 * (weights - 3 * 8 * 20)));
}

TEST_CASE("experts beside an MLP, inputs of layers, and keys that layers do not compute count") {
  ModelSpec spec = llama();
  const std::vector<double> plain = block_flops_per_token(spec, 5);
  spec.experts =
      ExpertsSpec{.num_experts = 7, .top_k = 2, .intermediate_size = 5, .beside_mlp = true};
  spec.per_layer_input = PerLayerInputSpec{.vocab_size = 9, .size = 4};
  spec.layers = {{.experts = true}, {}};
  std::vector<double> blocks = block_flops_per_token(spec, 5);
  CHECK(blocks[0] == 2 * 8 * 2 * 4);
  CHECK(blocks[1] == plain[1] + 2 * 8 * (3 * 2 * 5 + 7 + 2 * 4));
  CHECK(blocks[2] == plain[2] + 2 * 8 * 2 * 4);
  spec = llama();
  spec.layers = {{.k_is_v = true}, {.head_dim = 10, .num_kv_heads = 2, .kv_layer = 0}};
  blocks = block_flops_per_token(spec, 5);
  CHECK(blocks[1] == plain[1] - 2 * 8 * 6);
  CHECK(blocks[2] == 2 * (2 * 8 * 40 + 3 * 8 * 20) + 4 * 40 * 3);
}

TEST_CASE("a gate of attention is a part of q's product") {
  ModelSpec spec = llama();
  const double plain = flops_per_token(spec, 5);
  spec.gated_attention = true;
  CHECK(flops_per_token(spec, 5) == plain + 6 * 2 * 8 * 12);
}

TEST_CASE("a delta net reads and corrects its states, however long the sequence is") {
  ModelSpec spec = llama();
  const std::vector<double> attention = block_flops_per_token(spec, 5);
  spec.delta_net = DeltaNetSpec{
      .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .kernel = 4, .fused = true};
  spec.layers = {{.mixer = LayerMixer::kDeltaNet}, {}};
  const double weights = 8 * (2 * 2 * 3 + 2 * 4 * 5 + 2 * 4) + 4 * 5 * 8 + 3 * 8 * 20;
  for (const int64_t seq : {1, 5}) {
    const std::vector<double> blocks = block_flops_per_token(spec, seq);
    CHECK(blocks[1] == 2 * weights + 6 * 4 * 3 * 5);
    if (seq == 5) CHECK(blocks[2] == attention[2]);
  }
}

TEST_CASE("operations of forward are counted block by block, and are a third of the whole") {
  const std::vector<double> blocks = block_flops_per_token(llama(), 5);
  REQUIRE(blocks.size() == 4);
  CHECK(blocks[0] == 0);
  CHECK(blocks[1] == 2 * (8 * 12 + 2 * 8 * 6 + 12 * 8 + 3 * 8 * 20) + 4 * 12 * 3);
  CHECK(blocks[3] == 2 * 8 * 100);
  CHECK(3 * (blocks[1] + blocks[2] + blocks[3]) == flops_per_token(llama(), 5));
}

TEST_CASE("a short convolution has three products and the output's, and sees no scores") {
  ModelSpec spec = llama();
  spec.short_conv = {.kernel_size = 3};
  spec.layers.resize(static_cast<size_t>(spec.num_layers));
  spec.layers[0].mixer = LayerMixer::kShortConv;
  const std::vector<double> blocks = block_flops_per_token(spec, 5);
  CHECK(blocks[1] == 2 * (8 * 3 * 8 + 8 * 8 + 3 * 8 * 20));
  CHECK(blocks[2] == block_flops_per_token(llama(), 5)[2]);
}

TEST_CASE("an MLP without a gate has two products") {
  ModelSpec spec = llama();
  const double gated = flops_per_token(spec, 4);
  spec.gated_mlp = false;
  CHECK(gated - flops_per_token(spec, 4) == 6 * 2 * 8 * 20);
}

}  // namespace zeroth::model::spec_test
