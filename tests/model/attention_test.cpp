#include "model/blocks/attention.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::attention_test {
namespace {

using torch::Tensor;

ModelSpec small() {
  ModelSpec spec;
  spec.hidden_size = 8;
  spec.num_layers = 1;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 6;
  spec.max_positions = 32;
  return spec;
}

// Softmax over what each token sees, with every head's own keys and values.
Tensor reference(const ModelSpec& spec, Parameters& p, const Tensor& x, int64_t window) {
  const int64_t seq = x.size(1);
  RopeTable table(spec.rope, spec.head_dim, spec.max_positions);
  const auto heads = [&](const char* name, bool turned) {
    const Tensor weight = p.at(std::string(name) + ".weight").detach();
    Tensor y = at::matmul(x, weight.t()).view({x.size(0), seq, -1, spec.head_dim});
    if (turned) y = rotate(y, table.sequence(seq, x));
    return y.repeat_interleave(spec.num_heads / y.size(2), 2).transpose(1, 2);
  };
  Tensor scores = at::matmul(heads("q", true), heads("k", true).transpose(2, 3)) /
                  std::sqrt(static_cast<double>(spec.head_dim));
  const Tensor row = torch::arange(seq).unsqueeze(1), column = torch::arange(seq).unsqueeze(0);
  Tensor hidden = column > row;
  if (window > 0) hidden = hidden.logical_or(column <= row - window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const Tensor y = at::matmul(scores.softmax(-1), heads("v", false)).transpose(1, 2).flatten(2);
  return at::matmul(y, p.at("o.weight").detach().t());
}

}  // namespace

TEST_CASE("grouped heads and windows give the formula, shorter and longer than the window") {
  torch::manual_seed(8);
  const torch::NoGradGuard no_grad;
  for (const int64_t window : {0, 1, 3, 7, 20}) {
    ModelSpec spec = small();
    spec.layers = {{.window = window}};
    Attention attention(spec, 0, std::make_shared<SequenceTables>(spec));
    Parameters parameters = randomise(attention);
    for (const int64_t seq : {7, 2, 7}) {
      const Tensor x = torch::randn({2, seq, 8});
      CHECK(difference(attention.forward(x, MicroBatch{}), reference(spec, parameters, x, window)) <
            1e-5);
    }
  }
}

TEST_CASE("tokens of a packed row see their own sample alone, with positions of its own") {
  torch::manual_seed(10);
  const torch::NoGradGuard no_grad;
  for (const int64_t head_dim : {6, 16}) {
    for (const int64_t window : {0, 3}) {
      ModelSpec spec = small();
      spec.head_dim = head_dim;
      spec.layers = {{.window = window}};
      Attention attention(spec, 0, std::make_shared<SequenceTables>(spec));
      randomise(attention);
      const Tensor x = torch::randn({2, 9, 8});
      MicroBatch batch;  // rows with samples of 4 and 5, and of 9 tokens
      batch.first_keys = torch::zeros({2, 9}, torch::kLong);
      batch.first_keys[0].narrow(0, 4, 5).fill_(4);
      batch.positions = torch::arange(9) - batch.first_keys;
      const Tensor y = attention.forward(x, batch);
      const auto alone = [&](int64_t row, int64_t begin, int64_t size) {
        const Tensor part = x.narrow(0, row, 1).narrow(1, begin, size);
        CHECK(difference(y.narrow(0, row, 1).narrow(1, begin, size),
                         attention.forward(part, MicroBatch{})) <
              1e-5);  // products of other shapes
      };
      alone(0, 0, 4);
      alone(0, 4, 5);
      alone(1, 0, 9);
    }
  }
}

TEST_CASE("a token sees nothing after it") {
  torch::manual_seed(9);
  const ModelSpec spec = small();
  Attention attention(spec, 0, std::make_shared<SequenceTables>(spec));
  randomise(attention);
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({1, 9, 8});
  Tensor changed = x.clone();
  changed.narrow(1, 5, 4).normal_();
  const Tensor a = attention.forward(x, MicroBatch{}), b = attention.forward(changed, MicroBatch{});
  CHECK(difference(a.narrow(1, 0, 5), b.narrow(1, 0, 5)) < 1e-6);
  CHECK(difference(a.narrow(1, 5, 4), b.narrow(1, 5, 4)) > 1e-2);
}

TEST_CASE("keys are shared where a GPU's kernel for the case shares them") {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const int capability : {80, 86, 89, 90, 100, 120}) {
      CHECK(gpu_supports_gqa({dtype, 128, false, true, capability}));
      CHECK(gpu_supports_gqa({dtype, 256, false, true, capability}));
      CHECK(gpu_supports_gqa({dtype, 208, false, false, capability}));
      CHECK_FALSE(gpu_supports_gqa({dtype, 128, true, true, capability}));
      CHECK_FALSE(gpu_supports_gqa({dtype, 264, false, false, capability}));
      CHECK_FALSE(gpu_supports_gqa({torch::kFloat, 128, false, true, capability}));
    }
    CHECK_FALSE(gpu_supports_gqa({dtype, 128, false, false, 75}));
    for (const int64_t head_dim : {200, 224}) {
      for (const int capability : {86, 89, 120, 121})
        CHECK_FALSE(gpu_supports_gqa({dtype, head_dim, false, true, capability}));
      for (const int capability : {80, 90, 100})
        CHECK(gpu_supports_gqa({dtype, head_dim, false, true, capability}));
    }
  }
}

}  // namespace zeroth::model::attention_test
