#include "model/blocks/linear.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::linear_test {
namespace {

using torch::Tensor;

Linear make(const LinearShape& shape, torch::ScalarType dtype = torch::kFloat32) {
  Linear layer(shape);
  give_memory(layer.weight, torch::randn(layer.weight.sizes()).to(dtype));
  if (shape.bias) give_memory(layer.bias, torch::randn(layer.bias.sizes()).to(dtype));
  return layer;
}

Tensor reference(const Tensor& x, const Linear& layer) {
  const Tensor w = layer.weight.detach();
  const Tensor y = at::matmul(x, layer.layout == WeightLayout::kOutIn ? w.t() : w);
  return layer.bias.defined() ? y + layer.bias.detach() : y;
}

}  // namespace

TEST_CASE("both layouts give x W and its gradients, with open gradients and without") {
  torch::manual_seed(1);
  for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
    for (const bool open : {false, true}) {
      const Linear layer = make({5, 7, true, layout});
      const Tensor x = torch::randn({2, 3, 5}).requires_grad_();
      const Tensor dy = torch::randn({2, 3, 7});
      if (open) define_main_grads({{"w", layer.weight}, {"b", layer.bias}});
      const Tensor y = linear(x, layer);
      CHECK(difference(y.detach(), reference(x.detach(), layer)) < 1e-6);
      y.backward(dy);
      const Tensor rows = dy.reshape({6, 7});
      const Tensor dw = at::mm(rows.t(), x.detach().reshape({6, 5}));
      CHECK(difference(layer.weight.grad(), layout == WeightLayout::kOutIn ? dw : dw.t()) < 1e-6);
      CHECK(difference(layer.bias.grad(), rows.sum(0)) < 1e-6);
      const Tensor w = layer.weight.detach();
      const Tensor dx = at::matmul(dy, layout == WeightLayout::kOutIn ? w : w.t());
      CHECK(difference(x.grad(), dx) < 1e-6);
    }
  }
}

TEST_CASE("an open gradient keeps its memory and what it holds") {
  const Linear layer = make({4, 3});
  layer.weight.mutable_grad() = torch::ones({3, 4});
  const void* memory = layer.weight.grad().data_ptr();
  linear(torch::ones({2, 4}), layer).backward(torch::ones({2, 3}));
  CHECK(layer.weight.grad().data_ptr() == memory);
  CHECK(torch::equal(layer.weight.grad(), torch::full({3, 4}, 3.0)));
}

TEST_CASE("an fp32 gradient view of a bf16 weight keeps what bf16 would lose") {
  const Linear layer = make({1, 1, true}, torch::kBFloat16);
  define_main_grads({{"w", layer.weight}, {"b", layer.bias}});
  layer.weight.mutable_grad().fill_(256);
  layer.bias.mutable_grad().fill_(256);
  const Tensor one = torch::ones({1, 1}, torch::kBFloat16);
  linear(one, layer).backward(one);
  CHECK(layer.weight.grad().item<float>() == 257);
  CHECK(layer.bias.grad().item<float>() == 257);
}

TEST_CASE("several products of one input sum its gradient") {
  torch::manual_seed(2);
  const Linear a = make({4, 3, true}), b = make({4, 2, true}), c = make({4, 5, true});
  const Tensor x = torch::randn({6, 4}).requires_grad_();
  const std::vector<Tensor> y = linear(x, {&a, &b, &c});
  (y[0].sum() + y[1].sum() + y[2].sum()).backward();
  const Tensor each =
      a.weight.detach().sum(0) + b.weight.detach().sum(0) + c.weight.detach().sum(0);
  CHECK(difference(x.grad(), each.expand({6, 4})) < 1e-6);
  CHECK(difference(b.bias.grad(), torch::full({2}, 6.0)) < 1e-6);
}

TEST_CASE("a product that is not used has no gradient") {
  const Linear a = make({4, 3}), b = make({4, 2});
  linear(torch::ones({1, 4}), {&a, &b})[0].sum().backward();
  CHECK(a.weight.grad().defined());
  CHECK_FALSE(b.weight.grad().defined());
}

TEST_CASE("frozen weights and inputs without gradient cost no gradient") {
  const Linear layer = make({4, 3, true});
  const Tensor x = torch::ones({2, 4});
  layer.weight.requires_grad_(false);
  linear(x, layer).sum().backward();
  CHECK_FALSE(layer.weight.grad().defined());
  CHECK(layer.bias.grad().defined());
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("the weight's memory may be swapped between forward and backward") {
  const Linear layer = make({4, 3});
  const Tensor x = torch::randn({2, 4}).requires_grad_();
  const Tensor y = linear(x, layer);
  const Tensor other = layer.weight.detach().clone();
  layer.weight.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(other.data_ptr(), torch::kCPU));
  y.sum().backward();
  CHECK(difference(x.grad(), other.sum(0).expand({2, 4})) < 1e-6);
}

}  // namespace zeroth::model::linear_test
