#include "model/blocks/mlp.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::mlp_test {
namespace {

using torch::Tensor;

Tensor activate(const Tensor& x, Activation activation) {
  if (activation == Activation::kSilu) return x * at::sigmoid(x);
  if (activation == Activation::kGelu) return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0)));
  if (activation == Activation::kRelu) return at::clamp_min(x, 0);
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
}

}  // namespace

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

TEST_CASE("gate and up as one product are the two products") {
  torch::manual_seed(8);
  ModelSpec spec;
  spec.hidden_size = 4;
  const Mlp two(spec, 6);
  Parameters parameters = randomise(two);
  spec.fused_gate_up = true;
  const Mlp one(spec, 6);
  Parameters fused = randomise(one);
  {
    const torch::NoGradGuard no_grad;
    fused["gate_up.weight"].copy_(at::cat({parameters["gate.weight"], parameters["up.weight"]}));
    fused["down.weight"].copy_(parameters["down.weight"]);
  }
  const Tensor x = torch::randn({3, 4}), dy = torch::randn({3, 4});
  const auto run = [&](const Mlp& mlp) {
    const Tensor y = mlp.forward(x, {});
    y.backward(dy);
    return y.detach();
  };
  CHECK(difference(run(one), run(two)) < 1e-6);
  const Tensor expected =
      at::cat({parameters["gate.weight"].grad(), parameters["up.weight"].grad()});
  CHECK(difference(fused["gate_up.weight"].grad(), expected) < 1e-6);
}

}  // namespace zeroth::model::mlp_test
