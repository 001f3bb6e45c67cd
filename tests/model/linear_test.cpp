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

// A product whose weight is quantized from random numbers.
Linear make_nf4(LinearShape shape, const QuantizationSpec& quantization, torch::ScalarType dtype) {
  shape.quantization = quantization;
  Linear layer(shape);
  const int64_t numel = layer.out * layer.in;
  const Tensor codes = torch::empty({layer.weight.numel()}, torch::kByte);
  const Tensor absmax = torch::empty({nf4_blocks(numel)});
  quantize_nf4(torch::randn({numel}), codes, absmax);
  give_memory(layer.weight, codes.view(layer.weight.sizes()));
  const auto give = [](const Tensor& parameter, const Tensor& values) {
    give_memory(parameter, values.view(torch::kByte).view(parameter.sizes()));
  };
  const Nf4Scales& scales = layer.quantized->scales;
  if (quantization.double_quant) {
    const auto [absmax_codes, nested] = quantize_absmax(absmax);
    give(scales.absmax, absmax_codes);
    give(scales.nested_absmax, nested);
  } else {
    give(scales.absmax, absmax);
  }
  if (shape.bias) give_memory(layer.bias, torch::randn(layer.bias.sizes()).to(dtype));
  return layer;
}

// The same product with a weight of `dtype`.
Linear dequantized(const Linear& quantized, torch::ScalarType dtype) {
  Linear layer(LinearShape{quantized.in, quantized.out, quantized.bias.defined()});
  const Tensor weight = torch::empty({quantized.out, quantized.in}, dtype);
  dequantize_nf4(quantized.weight, quantized.quantized->scales, weight);
  give_memory(layer.weight, weight);
  layer.weight.requires_grad_(false);
  if (quantized.bias.defined()) give_memory(layer.bias, quantized.bias.detach());
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

TEST_CASE("a product with NF4 is that with its dequantized weight, to the bit") {
  torch::manual_seed(5);
  for (const bool is_double : {false, true}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      for (const int64_t in : {64, 192, 40}) {  // rows of whole blocks, and others
        const QuantizationSpec quantization{.double_quant = is_double};
        const Linear a = make_nf4({in, 96, true}, quantization, dtype);
        const Linear b = make_nf4({in, 33, true}, quantization, dtype);
        const Linear plain_a = dequantized(a, dtype), plain_b = dequantized(b, dtype);
        const Tensor x = torch::randn({70, in}).to(dtype), dy = torch::randn({70, 96}).to(dtype),
                     dz = torch::randn({70, 33}).to(dtype);
        const auto run = [&](const Linear& first, const Linear& second) {
          const Tensor own = x.clone().requires_grad_();
          const std::vector<Tensor> y = linear(own, {&first, &second});
          (y[0] * dy + at::constant_pad_nd(y[1] * dz, {0, 63})).sum().backward();
          return std::vector<Tensor>{y[0].detach(), y[1].detach(), own.grad()};
        };
        const auto quantized = run(a, b), expected = run(plain_a, plain_b);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(torch::equal(quantized[i], expected[i]));
        CHECK(!a.weight.grad().defined());
      }
    }
  }
}

TEST_CASE("a weight in NF4 is rounded first to the precision that its files name") {
  torch::manual_seed(6);
  const Linear layer = make_nf4(
      {64, 8}, {.double_quant = false, .is_stored = true, .dtype = "bfloat16"}, torch::kFloat32);
  const Tensor one = torch::eye(64);
  const Tensor weight = linear(one, layer).detach().t();
  CHECK(torch::equal(weight, weight.to(torch::kBFloat16).to(torch::kFloat32)));
  CHECK(difference(weight, dequantized(layer, torch::kFloat32).weight.detach()) < 4e-3);
}

}  // namespace zeroth::model::linear_test
