#include "model/custom_function.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

namespace zeroth::model::custom_function_test {
namespace {

using torch::Tensor;

// Returns a * b and a + b.
class ProductAndSum final : public CustomFunction {
 public:
  explicit ProductAndSum(bool keeps_undefined = false) : keeps_undefined_(keeps_undefined) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    CHECK_FALSE(torch::GradMode::is_enabled());
    if (keeps_undefined_) context.keep_undefined_grads();
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[1], inputs[0] + inputs[1]};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    CHECK_FALSE(torch::GradMode::is_enabled());
    CHECK(grads[1].defined() == !keeps_undefined_);
    const TensorVector saved = context.saved();
    TensorVector gradients(2);
    for (const size_t i : {0, 1}) {
      if (!context.needs_input_grad(i)) continue;
      gradients[i] = grads[0] * saved[1 - i];
      if (grads[1].defined()) gradients[i] += grads[1];
    }
    return gradients;
  }

 private:
  bool keeps_undefined_;
};

Tensor leaf(double value, bool requires_grad = true) {
  return torch::full({3}, value, torch::kFloat64).set_requires_grad(requires_grad);
}

}  // namespace

TEST_CASE("a function's backward gives the gradients of its inputs") {
  const Tensor a = leaf(2), b = leaf(5);
  const TensorVector y = apply_function(std::make_shared<ProductAndSum>(), {a, b});
  CHECK(at::equal(y[0], torch::full({3}, 10.0, torch::kFloat64)));
  torch::autograd::backward({(y[0] * 10 + y[1]).sum()}, {});
  CHECK(at::equal(a.grad(), torch::full({3}, 51.0, torch::kFloat64)));
  CHECK(at::equal(b.grad(), torch::full({3}, 21.0, torch::kFloat64)));
}

TEST_CASE("an input without a gradient needs none, and without any nothing is recorded") {
  const Tensor a = leaf(2), b = leaf(5, false);
  torch::autograd::backward({apply_function(std::make_shared<ProductAndSum>(), {a, b})[0].sum()},
                            {});
  CHECK(at::equal(a.grad(), torch::full({3}, 5.0, torch::kFloat64)));
  CHECK_FALSE(b.grad().defined());
  CHECK_FALSE(apply_function(std::make_shared<ProductAndSum>(), {b, b})[0].requires_grad());
}

TEST_CASE(
    "the gradient of an unused output is zeros, or undefined where the function asks for it") {
  for (const bool keeps_undefined : {false, true}) {
    const Tensor a = leaf(2), b = leaf(5);
    const auto function = std::make_shared<ProductAndSum>(keeps_undefined);
    torch::autograd::backward({apply_function(function, {a, b})[0].sum()}, {});
    CHECK(at::equal(a.grad(), torch::full({3}, 5.0, torch::kFloat64)));
  }
}

TEST_CASE("a saved tensor that is written in place is an error of the backward") {
  const Tensor a = leaf(2), b = leaf(5), doubled = b * 2;
  const Tensor loss = apply_function(std::make_shared<ProductAndSum>(), {a, doubled})[0].sum();
  doubled.add_(1);
  CHECK_THROWS_AS(torch::autograd::backward({loss}, {}), c10::Error);
}

}  // namespace zeroth::model::custom_function_test
