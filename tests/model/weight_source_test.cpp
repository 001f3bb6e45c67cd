#include "model/weight_source.h"

#include <doctest/doctest.h>

#include <cmath>

namespace zeroth::model::weight_source_test {
namespace {

using torch::Tensor;

Tensor read(const std::string& name, int64_t begin, int64_t count, uint64_t seed = 1,
            const std::string& family = "gpt2", torch::ScalarType dtype = torch::kFloat32) {
  ModelSpec spec;
  spec.family = family;
  spec.num_layers = 8;
  RandomSource source(spec, seed);
  Tensor out = torch::empty({count}, dtype);
  source.read({name, TensorSlice::full({begin + count}), begin}, out);
  return out;
}

}  // namespace

TEST_CASE("weights are normal with the config's deviation") {
  const Tensor values = read("embedding.weight", 0, 200'000);
  CHECK(std::abs(values.mean().item<double>()) < 2e-4);
  CHECK(values.std().item<double>() == doctest::Approx(0.02).epsilon(0.01));
  const Tensor sorted = (values / 0.02).abs();
  CHECK(sorted.lt(1).to(torch::kFloat32).mean().item<double>() ==
        doctest::Approx(0.683).epsilon(0.01));
  CHECK(sorted.gt(3).to(torch::kFloat32).mean().item<double>() ==
        doctest::Approx(0.0027).epsilon(0.2));
}

TEST_CASE("neighbouring values are independent") {
  const Tensor values = read("embedding.weight", 0, 200'000) / 0.02;
  for (const int64_t lag : {1, 2, 3}) {
    const Tensor product = values.narrow(0, 0, 199'990) * values.narrow(0, lag, 199'990);
    CHECK(std::abs(product.mean().item<double>()) < 0.01);
  }
}

TEST_CASE("a value depends on seed, name and index, not on the range that is read") {
  const Tensor whole = read("layers.0.mlp.up.weight", 0, 1001);
  CHECK(torch::equal(read("layers.0.mlp.up.weight", 333, 500), whole.narrow(0, 333, 500)));
  CHECK_FALSE(torch::equal(read("layers.1.mlp.up.weight", 0, 1001), whole));
  CHECK_FALSE(torch::equal(read("layers.0.mlp.up.weight", 0, 1001, 2), whole));
  CHECK(torch::equal(read("layers.0.mlp.up.weight", 0, 1001, 1, "gpt2", torch::kBFloat16),
                     whole.to(torch::kBFloat16)));
}

TEST_CASE("the padding token's row of the embedding is zero, also in a part of it") {
  ModelSpec spec;
  spec.family = "llama";
  RandomSource plain(spec, 3);
  spec.padding_token = 2;
  RandomSource source(spec, 3);
  const auto read = [](RandomSource& from, const std::string& name, const TensorSlice& box) {
    const Tensor out = torch::empty({box.elements()});
    from.read({name, box, 0}, out);
    return out.view(box.sizes);
  };
  const TensorSlice whole = TensorSlice::full({5, 4});
  Tensor expected = read(plain, "embedding.weight", whole).clone();
  expected[2].zero_();
  CHECK(torch::equal(read(source, "embedding.weight", whole), expected));
  const TensorSlice part{{5, 4}, {1, 0}, {3, 4}};
  CHECK(torch::equal(read(source, "embedding.weight", part), expected.narrow(0, 1, 3)));
  CHECK(torch::equal(read(source, "head.weight", whole), read(plain, "head.weight", whole)));
}

TEST_CASE("a box has the values of the whole parameter") {
  RandomSource source({}, 3);
  const auto read = [&](const TensorSlice& box, int64_t first, int64_t count, torch::Dtype dtype) {
    const Tensor out = torch::empty({count}, dtype);
    source.read({"layers.0.mlp.down.weight", box, first}, out);
    return out;
  };
  constexpr int64_t kRows = 300, kColumns = 411;
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const Tensor whole = read(TensorSlice::full({kRows, kColumns}), 0, kRows * kColumns, dtype);
    for (const int64_t begin : {0, 137, 274}) {
      const Tensor slice = whole.view({kRows, kColumns}).narrow(1, begin, 137).reshape(-1);
      const TensorSlice box{{kRows, kColumns}, {0, begin}, {kRows, 137}};
      CHECK(torch::equal(read(box, 0, slice.numel(), dtype), slice));
      CHECK(torch::equal(read(box, 200, 30'000, dtype), slice.narrow(0, 200, 30'000)));
    }
  }
}

TEST_CASE(
    "norms begin at 1, biases at 0, xIELU as in transformers, GPT-2's residual products smaller") {
  CHECK(torch::equal(read("layers.0.attention_norm.weight", 0, 4), torch::ones({4})));
  CHECK(torch::equal(read("layers.0.attention.q_norm.weight", 0, 4), torch::ones({4})));
  CHECK(torch::equal(read("layers.0.mlp.up.bias", 0, 4), torch::zeros({4})));
  CHECK(read("layers.0.mlp.activation.eps", 0, 1).item<double>() == doctest::Approx(-1e-6));
  CHECK(read("layers.0.mlp.activation.beta", 0, 1).item<double>() == 0.5);
  const auto factor = [](const char* name) {
    return at::softplus(read(name, 0, 1)).item<double>();
  };
  CHECK(factor("layers.0.mlp.activation.alpha_p") == doctest::Approx(0.8));
  CHECK(factor("layers.0.mlp.activation.alpha_n") == doctest::Approx(0.3));
  for (const char* name : {"layers.0.attention.o.weight", "layers.0.mlp.down.weight"}) {
    CHECK(read(name, 0, 100'000).std().item<double>() == doctest::Approx(0.005).epsilon(0.02));
    CHECK(read(name, 0, 100'000, 1, "llama").std().item<double>() ==
          doctest::Approx(0.02).epsilon(0.02));
  }
}

TEST_CASE("factors begin with 1, also those of a router") {
  for (const char* name : {"layers.0.layer_scalar", "layers.0.experts.router.scale",
                           "layers.0.experts.router.per_expert_scale"})
    CHECK(torch::equal(read(name, 0, 4), torch::ones({4})));
}

TEST_CASE("a delta net begins with transformers' rates of decay") {
  CHECK(torch::equal(read("layers.0.delta_net.dt_bias", 0, 4), torch::ones({4})));
  const Tensor rates = read("layers.0.delta_net.A_log", 0, 100'000).exp();
  CHECK(rates.min().item<double>() == doctest::Approx(0.01).epsilon(0.1));
  CHECK(rates.max().item<double>() == doctest::Approx(16).epsilon(1e-3));
  CHECK(rates.mean().item<double>() == doctest::Approx(8).epsilon(0.02));
  // The norm of its output has a weight around 1 where those of the model are around 0.
  ModelSpec spec;
  spec.norm.weight_offset = 1;
  RandomSource source(spec, 1);
  Tensor weight = torch::empty({4});
  source.read({"layers.0.delta_net.norm.weight", TensorSlice::full({4}), 0}, weight);
  CHECK(torch::equal(weight, torch::ones({4})));
  source.read({"layers.0.attention.q_norm.weight", TensorSlice::full({4}), 0}, weight);
  CHECK(torch::equal(weight, torch::zeros({4})));
}

}  // namespace zeroth::model::weight_source_test
