#include "model/blocks/experts.h"

#include <doctest/doctest.h>

#include "model/blocks/main_grad.h"
#include "tests/model/materialize.h"

namespace zeroth::model::experts_test {
namespace {

using torch::Tensor;

ModelSpec spec_of(const ExpertsSpec& experts, Activation activation = Activation::kSilu) {
  ModelSpec spec;
  spec.activation = activation;
  spec.hidden_size = 6;
  spec.num_layers = 1;
  spec.experts = experts;
  return spec;
}

// What autograd makes of the formula: every expert sees every token, and most weights are 0.
Tensor formula(const ModelSpec& model, const std::map<std::string, Tensor>& p, const Tensor& x,
               const Router::Choice& choice) {
  const ExpertsSpec& spec = *model.experts;
  Tensor sum = torch::zeros_like(x);
  for (int64_t expert = 0; expert < spec.num_experts; ++expert) {
    const Tensor weight = (choice.weights * choice.experts.eq(expert)).sum(-1, /*keepdim=*/true);
    const auto matrix = [&](const char* name) {
      const Tensor own = p.at(name)[expert];
      return spec.in_out ? own : own.t();
    };
    const Tensor in = spec.router.scales_input ? x * weight : x;
    Tensor both = at::matmul(in, matrix("experts.gate_up"));
    if (spec.bias) both = both + p.at("experts.gate_up_bias")[expert];
    const int64_t size = spec.intermediate_size;
    Tensor gate = spec.interleaved ? both.slice(1, 0, {}, 2) : both.narrow(1, 0, size);
    Tensor up = spec.interleaved ? both.slice(1, 1, {}, 2) : both.narrow(1, size, size);
    Tensor inner;
    if (spec.limit > 0) {
      gate = gate.clamp_max(spec.limit);
      inner = (up.clamp(-spec.limit, spec.limit) + 1) * gate * at::sigmoid(gate * 1.702);
    } else if (model.activation == Activation::kGeluTanh) {
      inner = at::gelu(gate, "tanh") * up;
    } else {
      inner = gate * at::sigmoid(gate) * up;
    }
    Tensor out = at::matmul(inner, matrix("experts.down"));
    if (spec.bias) out = out + p.at("experts.down_bias")[expert];
    sum = sum +
          (spec.router.scales_input ? out * choice.experts.eq(expert).any(-1, true) : out * weight);
  }
  return sum;
}

}  // namespace

TEST_CASE("outputs and every gradient are those of the formula") {
  const ExpertsSpec variants[] = {
      {.num_experts = 5, .top_k = 2, .intermediate_size = 4},
      {.num_experts = 3,
       .top_k = 2,
       .intermediate_size = 4,
       .router = {.bias = true},
       .in_out = true,
       .interleaved = true,
       .bias = true,
       .limit = 0.7},
      {.num_experts = 4,
       .top_k = 1,
       .intermediate_size = 4,
       .router = {.score = RouterScore::kSigmoid, .normalize = false, .scales_input = true},
       .in_out = true}};
  const auto check = [](const ExpertsSpec& experts, Activation activation) {
    CAPTURE(experts.num_experts);
    torch::manual_seed(5);
    const ModelSpec spec = spec_of(experts, activation);
    const Experts block(spec, "layers.0", nullptr);
    const Parameters parameters = randomise(block);
    const Tensor x = torch::randn({2, 7, 6}).requires_grad_();
    const Tensor dy = torch::randn({2, 7, 6});
    const Tensor y = block.forward(x, x, {});
    y.backward(dy);

    const auto router = std::make_shared<Router>(spec, "layers.0", nullptr);
    Parameters of_router = randomise(*router);
    std::map<std::string, Tensor> plain;
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [name, tensor] : parameters) {
        plain[name] = tensor.detach().clone().requires_grad_();
        if (name.starts_with("router.")) of_router[name.substr(7)].copy_(tensor);
      }
    }
    const Tensor other_x = x.detach().clone().requires_grad_();
    const Tensor rows = other_x.flatten(0, 1);
    const Tensor expected = formula(spec, plain, rows, router->forward(rows, {}));
    expected.view({2, 7, 6}).backward(dy);
    CHECK(difference(y.detach().flatten(0, 1), expected.detach()) < 2e-6);
    CHECK(difference(x.grad(), other_x.grad()) < 5e-6);
    for (const auto& [name, tensor] : parameters) {
      CAPTURE(name);
      const Tensor grad =
          name.starts_with("router.") ? of_router[name.substr(7)].grad() : plain[name].grad();
      CHECK(difference(tensor.grad(), grad) < 5e-6);
    }
  };
  for (const ExpertsSpec& experts : variants) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh})
      check(experts, activation);
  }
}

TEST_CASE("experts refuse an activation that is not fused") {
  const ExpertsSpec experts = {.num_experts = 2, .top_k = 1, .intermediate_size = 4};
  CHECK_THROWS_WITH(Experts(spec_of(experts, Activation::kGelu), "layers.0", nullptr),
                    doctest::Contains("experts need SiLU or GELU by tanh"));
}

TEST_CASE("an expert without tokens gets a gradient of zeros, also in an open view") {
  torch::manual_seed(6);
  const ModelSpec spec = spec_of({.num_experts = 4, .top_k = 1, .intermediate_size = 3});
  const Experts block(spec, "layers.0", nullptr);
  Parameters parameters = randomise(block);
  {
    const torch::NoGradGuard no_grad;
    parameters["router.weight"].zero_();
    parameters["router.weight"][2].fill_(1);
  }
  for (const auto& [name, tensor] : parameters)
    tensor.mutable_grad() = make_main_grad(torch::full(tensor.sizes(), 7.0), /*unwritten=*/true);
  const Tensor x = torch::rand({5, 6}).requires_grad_();
  block.forward(x, x, {}).sum().backward();
  for (const char* name : {"experts.gate_up", "experts.down"}) {
    const Tensor grad = parameters[name].grad();
    CHECK(was_written(grad, /*unwritten=*/true));
    CHECK(grad[2].abs().max().item<double>() > 0);
    for (const int64_t unused : {0, 1, 3}) CHECK(grad[unused].abs().max().item<double>() == 0);
  }
}

}  // namespace zeroth::model::experts_test
