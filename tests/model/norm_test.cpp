#include "model/blocks/norm.h"

#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/model/materialize.h"

namespace zeroth::model::norm_test {
namespace {

using torch::Tensor;

NormSpec spec_of(NormKind kind) {
  return {.kind = kind, .eps = 1e-5, .bias = kind == NormKind::kLayer};
}

Tensor reference(NormKind kind, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (kind == NormKind::kLayer) return at::layer_norm(x, weight.sizes(), weight, bias, 1e-5);
  return x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
}

}  // namespace

TEST_CASE("norms and their gradients equal the formula") {
  torch::manual_seed(3);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const bool open : {false, true}) {
      const Norm norm(spec_of(kind), 8);
      Parameters parameters = randomise(norm);
      if (open) define_main_grads(parameters);
      const Tensor x = torch::randn({2, 3, 8}).requires_grad_();
      const Tensor dy = torch::randn({2, 3, 8});
      const Tensor y = norm.forward(x);
      y.backward(dy);

      const Tensor wide = x.detach().to(torch::kFloat64).requires_grad_();
      const Tensor weight = parameters["weight"].detach().to(torch::kFloat64).requires_grad_();
      const bool has_bias = parameters.contains("bias");
      const Tensor bias =
          has_bias ? parameters["bias"].detach().to(torch::kFloat64).requires_grad_() : Tensor();
      const Tensor expected = reference(kind, wide, weight, bias);
      expected.backward(dy.to(torch::kFloat64));
      CHECK(difference(y.detach(), expected.detach()) < 1e-6);
      CHECK(difference(x.grad(), wide.grad()) < 1e-6);
      CHECK(difference(parameters["weight"].grad(), weight.grad()) < 1e-6);
      if (has_bias) CHECK(difference(parameters["bias"].grad(), bias.grad()) < 1e-6);
    }
  }
}

TEST_CASE("a norm in a residual stream has the bits of a sum beside it, forth and back") {
  torch::manual_seed(4);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
      const Norm norm(spec_of(kind), 16);
      for (auto& parameter : norm.named_parameters())
        give_memory(parameter.value(), torch::rand({16}).to(dtype));
      const auto random = [&] { return torch::randn({5, 16}).to(dtype); };
      const Tensor x = random(), addend = random(), dstream = random(), dnorm = random();
      // Gradients of x, the addend and the weight, of both results or one of them.
      const auto gradients = [&](bool one_pass, bool adds, const std::vector<Tensor>& dys) {
        const Tensor a = x.clone().requires_grad_(), b = addend.clone().requires_grad_();
        Norm::Residual of;
        if (one_pass) {
          of = adds ? norm.forward_residual(a, b) : norm.forward_residual(a);
        } else {
          of.stream = adds ? a + b : a;
          of.norm = norm.forward(of.stream);
        }
        std::vector<Tensor> results, incoming;
        for (size_t i = 0; i < 2; ++i) {
          if (!dys[i].defined()) continue;
          results.push_back(i == 0 ? of.stream : of.norm);
          incoming.push_back(dys[i]);
        }
        const Tensor weight = norm.named_parameters()["weight"];
        std::vector<Tensor> all =
            torch::autograd::grad(results, {a, b, weight}, incoming, {}, false,
                                  /*allow_unused=*/true);
        for (const Tensor& result : {of.stream, of.norm}) all.push_back(result.detach());
        return all;
      };
      for (const bool adds : {false, true}) {
        for (const auto& dys : {std::vector<Tensor>{dstream, dnorm}, {dstream, {}}, {{}, dnorm}}) {
          const auto one = gradients(true, adds, dys), apart = gradients(false, adds, dys);
          REQUIRE(one.size() == apart.size());
          for (size_t i = 0; i < one.size(); ++i) {
            CAPTURE(i);
            REQUIRE(one[i].defined() == apart[i].defined());
            if (one[i].defined()) CHECK(torch::equal(one[i], apart[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("in 16 bits the gradients of a norm's parameters are summed over the rows in fp32") {
  constexpr int64_t kRows = 4096;
  torch::manual_seed(5);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const Norm norm(spec_of(kind), 16);
    auto parameters = norm.named_parameters();
    for (auto& parameter : parameters) {
      give_memory(parameter.value(), torch::ones({16}).to(torch::kBFloat16));
    }
    const Tensor x = torch::randn({kRows, 16}).to(torch::kBFloat16).requires_grad_();
    // Each addend of both sums is about 1.
    const Tensor normal =
        reference(kind, x.detach().to(torch::kDouble), torch::ones({16}, torch::kDouble), {});
    const Tensor dy = normal.sign().to(torch::kBFloat16);
    norm.forward(x).backward(dy);
    const Tensor sum = (normal * dy).sum(0);
    const Tensor own = parameters["weight"].grad().to(torch::kDouble);
    CHECK((own / sum - 1).abs().max().item<double>() < 4e-3);  // rounded once
    if (kind != NormKind::kLayer) continue;
    parameters["bias"].mutable_grad() = Tensor();
    norm.forward(x).backward(torch::ones_like(dy));
    CHECK(torch::equal(parameters["bias"].grad(), torch::full_like(parameters["bias"], kRows)));
  }
}

TEST_CASE("a bf16 RMS norm rounds before it multiplies with the weight") {
  torch::manual_seed(4);
  const Norm norm(spec_of(NormKind::kRms), 16);
  const Tensor weight = torch::randn({16}).to(torch::kBFloat16);
  give_memory(norm.named_parameters()["weight"], weight);
  const Tensor x = torch::randn({4, 16}).to(torch::kBFloat16);
  const Tensor wide = x.to(torch::kFloat32);
  const Tensor normal = wide * at::rsqrt(wide.pow(2).mean(-1, true) + 1e-5);
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(norm.forward(x), weight * normal.to(torch::kBFloat16)));
}

TEST_CASE(
    "norms without weight or bias, or with an offset or a weight per head, give the formula") {
  struct Variant {
    NormSpec spec;
    int64_t heads = 0;
  };
  const Variant variants[] = {{{.kind = NormKind::kLayer}},
                              {{.kind = NormKind::kLayer, .weight = false}},
                              {{.kind = NormKind::kLayer, .bias = true, .weight_offset = 1}},
                              {{.kind = NormKind::kLayer}, 3},
                              {{.kind = NormKind::kRms, .weight = false}},
                              {{.kind = NormKind::kRms, .weight_offset = 1}},
                              {{.kind = NormKind::kRms}, 3}};
  torch::manual_seed(11);
  for (const torch::Dtype dtype : {torch::kFloat, torch::kBFloat16}) {
    const double limit = dtype == torch::kFloat ? 2e-6 : 2e-2;
    for (const auto& [spec, heads] : variants) {
      CAPTURE(static_cast<int>(spec.kind));
      CAPTURE(spec.weight);
      CAPTURE(heads);
      const Norm norm(spec, 16, heads);
      Parameters parameters = randomise(norm);
      for (auto& [name, tensor] : parameters) tensor.set_data(tensor.detach().to(dtype));
      const Tensor x = torch::randn({2, 5, 3, 16}).to(dtype).requires_grad_();
      const Tensor dy = torch::randn({2, 5, 3, 16}).to(dtype);
      const Tensor y = norm.forward(x);
      CHECK((y.scalar_type() == dtype));
      y.backward(dy);

      const Tensor wide = x.detach().to(torch::kDouble).requires_grad_();
      const Tensor centered = spec.kind == NormKind::kLayer ? wide - wide.mean(-1, true) : wide;
      Tensor expected = centered * (centered.square().mean(-1, true) + spec.eps).rsqrt();
      std::map<std::string, Tensor> doubles;
      for (const auto& [name, tensor] : parameters)
        doubles[name] = tensor.detach().to(torch::kDouble).requires_grad_();
      if (spec.weight) expected = expected * (doubles["weight"] + spec.weight_offset);
      if (spec.bias) expected = expected + doubles["bias"];
      expected.backward(dy.to(torch::kDouble));
      CHECK(difference(y.detach(), expected.detach()) < limit);
      CHECK(difference(x.grad(), wide.grad()) < limit);
      for (const auto& [name, tensor] : parameters)
        CHECK(difference(tensor.grad(), doubles[name].grad()) < limit);
    }
  }
}

}  // namespace zeroth::model::norm_test
