#include "model/blocks/lora.h"

#include <doctest/doctest.h>

#include "model/blocks/linear.h"
#include "tests/model/materialize.h"

namespace zeroth::model::lora_test {
namespace {

using torch::Tensor;

constexpr int64_t kIn = 6;

std::shared_ptr<Linear> make(int64_t out, int64_t r, double p, bool trains_weight,
                             const std::string& name) {
  auto layer = std::make_shared<Linear>(LinearShape{.in = kIn, .out = out});
  if (r > 0) layer->add_adapter(r, 0.5 * static_cast<double>(r), make_dropout_site(p, name));
  randomise(*layer);
  layer->weight.requires_grad_(trains_weight);
  return layer;
}

// What linear() has to return, as autograd differentiates it.
Tensor formula(const Tensor& x, const Linear& layer, const MicroBatch& batch) {
  const Tensor y = at::matmul(x, layer.weight.t());
  if (!layer.adapter) return y;
  const auto& [factors, scale, site] = *layer.adapter;
  const Tensor kept = dropout(x, site, batch);
  return y + scale * at::matmul(at::matmul(kept, factors.a.t()), factors.b.t());
}

struct Result {
  std::vector<Tensor> outputs, gradients;  // gradients of x, then of what is trained
};

using Layers = std::vector<std::shared_ptr<Linear>>;

Result run_layers(const Layers& layers, const Tensor& values, const MicroBatch& batch,
                  bool by_formula) {
  Tensor x = values.clone().requires_grad_();
  std::vector<Tensor> y;
  if (by_formula) {
    for (const auto& layer : layers) y.push_back(formula(x, *layer, batch));
  } else {
    y = linear(x, {layers[0].get(), layers[1].get(), layers[2].get()}, batch);
  }
  Tensor sum = torch::zeros({});
  for (size_t i = 0; i < y.size(); ++i) sum = sum + (y[i] * y[i]).sum() * (1.0 + i);
  sum.backward();
  Result result{y, {x.grad().clone()}};
  for (const auto& layer : layers) {
    for (const Tensor& parameter : layer->parameters()) {
      CHECK(parameter.grad().defined() == parameter.requires_grad());
      if (parameter.grad().defined()) result.gradients.push_back(parameter.grad().clone());
      parameter.mutable_grad() = Tensor();
    }
  }
  return result;
}

MicroBatch batch_of(int64_t rows, int64_t seq) {
  MicroBatch batch;
  batch.tokens = torch::zeros({rows, seq}, torch::kLong);
  for (int64_t row = 0; row < rows; ++row) batch.sample_seeds.push_back(row + 5);
  return batch;
}

}  // namespace

TEST_CASE("products with adapters and without give the formula and its gradients") {
  torch::manual_seed(1);
  const MicroBatch batch = batch_of(2, 4);
  for (const double p : {0.0, 0.4}) {
    for (const bool trains_weight : {false, true}) {
      CAPTURE(p);
      CAPTURE(trains_weight);
      const Layers layers = {make(5, 2, p, trains_weight, "a"), make(7, 0, p, trains_weight, "b"),
                             make(3, 4, p, trains_weight, "c")};
      const Tensor x = torch::randn({2, 4, kIn});
      const Result own = run_layers(layers, x, batch, /*by_formula=*/false);
      const Result expected = run_layers(layers, x, batch, /*by_formula=*/true);
      for (size_t i = 0; i < layers.size(); ++i)
        CHECK(difference(own.outputs[i].detach(), expected.outputs[i].detach()) < 1e-6);
      REQUIRE(own.gradients.size() == expected.gradients.size());
      for (size_t i = 0; i < own.gradients.size(); ++i)
        CHECK(difference(own.gradients[i], expected.gradients[i]) < 1e-6);
    }
  }
}

TEST_CASE("an evaluation drops nothing, and the weight's layout does not matter") {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  Linear layer({.in = kIn, .out = 5, .bias = true, .layout = WeightLayout::kInOut});
  layer.add_adapter(2, 3, make_dropout_site(0.9, "a"));
  CHECK(layer.adapter->factors.a.sizes() == at::IntArrayRef({2, kIn}));
  CHECK(layer.adapter->factors.b.sizes() == at::IntArrayRef({5, 2}));
  randomise(layer);
  const Tensor x = torch::randn({3, kIn});
  const auto& [a, b] = layer.adapter->factors;
  const Tensor expected =
      at::addmm(layer.bias, x, layer.weight) + 3 * at::mm(at::mm(x, a.t()), b.t());
  CHECK(difference(linear(x, layer, {}), expected) < 1e-6);
}

TEST_CASE("open gradients of factors keep their memory, in fp32 for bf16 factors too") {
  torch::manual_seed(3);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const Layers layers = {make(5, 2, 0, false, "a"), make(7, 3, 0, false, "b"),
                           make(3, 4, 0, false, "c")};
    std::vector<Tensor> views;
    for (const auto& layer : layers) {
      for (const Tensor& parameter : layer->parameters()) {
        give_memory(parameter, parameter.detach().to(dtype));
        if (!parameter.requires_grad()) continue;
        parameter.mutable_grad() = torch::ones(parameter.sizes());
        views.push_back(parameter.grad());
      }
    }
    const Tensor x = torch::randn({64, kIn}).to(dtype);
    const std::vector<Tensor> y = linear(x, {layers[0].get(), layers[1].get(), layers[2].get()});
    (y[0].sum() + y[1].sum() + y[2].sum()).backward();
    size_t next = 0;
    for (const auto& layer : layers) {
      const auto& [factors, scale, site] = *layer->adapter;
      const Tensor a = factors.a.detach().to(torch::kFloat),
                   b = factors.b.detach().to(torch::kFloat);
      const Tensor sums = x.to(torch::kFloat).sum(0, /*keepdim=*/true);
      const Tensor da = scale * at::mm(b.sum(0, true).t(), sums);
      const double bound = dtype == torch::kFloat ? 1e-5 : 2e-2;
      CHECK(difference(views[next], da + 1) < bound);
      CHECK(factors.a.grad().data_ptr() == views[next++].data_ptr());
      CHECK(difference(views[next], (scale * at::mm(sums, a.t())).expand_as(b) + 1) < bound);
      CHECK(factors.b.grad().data_ptr() == views[next++].data_ptr());
    }
  }
}

TEST_CASE("x is kept for gradients of weights and factors only") {
  const auto references = [](const std::shared_ptr<Linear>& layer) {
    const Tensor x = torch::randn({4, kIn}).requires_grad_();
    const Tensor y = linear(x, *layer);
    return x.use_count() + x.storage().use_count();
  };
  const auto frozen = references(make(5, 0, 0, /*trains_weight=*/false, "a"));
  CHECK(references(make(5, 0, 0, /*trains_weight=*/true, "a")) > frozen);
  CHECK(references(make(5, 2, 0, /*trains_weight=*/false, "a")) > frozen);
}

}  // namespace zeroth::model::lora_test
