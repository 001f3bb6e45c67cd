#include "model/blocks/transformer_layer.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::transformer_layer_test {
namespace {

using torch::Tensor;

struct Layer {
  Layer() {
    spec.hidden_size = 8;
    spec.intermediate_size = 12;
    spec.num_layers = 1;
    spec.num_heads = spec.num_kv_heads = 2;
    spec.head_dim = 4;
    spec.max_positions = 16;
    block = std::make_shared<TransformerLayer>(spec, 0, std::make_shared<SequenceTables>(spec));
    parameters = randomise(*block);
  }

  ModelSpec spec;
  std::shared_ptr<TransformerLayer> block;
  Parameters parameters;
};

Tensor activate(const Tensor& x, Activation activation) {
  if (activation == Activation::kSilu) return x * at::sigmoid(x);
  if (activation == Activation::kGelu) return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0)));
  if (activation == Activation::kRelu) return at::clamp_min(x, 0);
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
}

}  // namespace

TEST_CASE("halves whose last product is zero leave the residual stream as it is") {
  Layer layer;
  const torch::NoGradGuard no_grad;
  layer.parameters["attention.o.weight"].zero_();
  layer.parameters["mlp.down.weight"].zero_();
  const Tensor x = torch::randn({2, 5, 8});
  CHECK(torch::equal(layer.block->forward(x, {}), x));
}

TEST_CASE("the input stays untouched and a recomputed forward gives bit-equal gradients") {
  Layer layer;
  const Tensor x = torch::randn({2, 5, 8});
  const Tensor copy = x.clone();
  const Tensor dy = torch::randn({2, 5, 8});
  std::vector<Tensor> dx, dw;
  for (int repeat = 0; repeat < 2; ++repeat) {
    define_main_grads(layer.parameters);
    const Tensor input = x.detach().requires_grad_();
    layer.block->forward(input, {}).backward(dy);
    dx.push_back(input.grad());
    dw.push_back(layer.parameters["attention.k.weight"].grad());
  }
  CHECK(torch::equal(x, copy));
  CHECK(torch::equal(dx[0], dx[1]));
  CHECK(torch::equal(dw[0], dw[1]));
}

TEST_CASE("two forwards in flight do not disturb each other's gradients") {
  Layer layer;
  const Tensor a = torch::randn({1, 5, 8}).requires_grad_();
  const Tensor b = torch::randn({1, 9, 8}).requires_grad_();
  layer.block->forward(a, {}).sum().backward();
  const Tensor alone = a.grad().clone();
  a.mutable_grad() = Tensor();
  const Tensor ya = layer.block->forward(a, {});
  const Tensor yb = layer.block->forward(b, {});
  yb.sum().backward();
  ya.sum().backward();
  CHECK(torch::equal(a.grad(), alone));
}

TEST_CASE("each activation, gated or not, gives the formula and its gradients") {
  torch::manual_seed(7);
  for (const bool gated : {true, false}) {
    for (const Activation activation :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
      ModelSpec spec;
      spec.hidden_size = 4;
      spec.intermediate_size = 6;
      spec.gated_mlp = gated;
      spec.activation = activation;
      const Mlp mlp(spec, spec.intermediate_size);
      Parameters parameters = randomise(mlp);
      const Tensor x = torch::randn({2, 3, 4}).requires_grad_();
      const Tensor dy = torch::randn({2, 3, 4});
      const Tensor y = mlp.forward(x, {});
      y.backward(dy);

      std::map<std::string, Tensor> wide;
      for (const auto& [name, tensor] : parameters) {
        wide[name] = tensor.detach().to(torch::kFloat64).requires_grad_();
      }
      const Tensor wide_x = x.detach().to(torch::kFloat64).requires_grad_();
      const Tensor up = at::matmul(wide_x, wide["up.weight"].t());
      const Tensor inner =
          gated ? activate(at::matmul(wide_x, wide["gate.weight"].t()), activation) * up
                : activate(up, activation);
      const Tensor expected = at::matmul(inner, wide["down.weight"].t());
      expected.backward(dy.to(torch::kFloat64));
      CHECK(difference(y.detach(), expected.detach()) < 2e-6);
      CHECK(difference(x.grad(), wide_x.grad()) < 2e-6);
      for (const auto& [name, tensor] : parameters) {
        CHECK(difference(tensor.grad(), wide[name].grad()) < 2e-6);
      }
    }
  }
}

}  // namespace zeroth::model::transformer_layer_test
