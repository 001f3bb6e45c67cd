// The gated delta rule in chunks against the rule itself, token after token.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "model/kernels/sequence_kernels.h"
#include "tests/model/materialize.h"

namespace zeroth::model::delta_rule_test {
namespace {

using torch::Tensor;

constexpr int64_t kKeyHeads = 2, kValueHeads = 4, kKeyDim = 5, kValueDim = 6;

struct Case {
  DeltaRuleInputs in;
  Tensor dy;

  std::vector<Tensor*> tensors() { return {&in.q, &in.k, &in.v, &in.decay, &in.beta}; }
};

Case make_case(int64_t batch, int64_t seq) {
  torch::manual_seed(7);
  const auto random = [&](int64_t heads, int64_t size) {
    return torch::randn({batch, seq, heads, size});
  };
  Case made;
  made.in = {.q = random(kKeyHeads, kKeyDim),
             .k = random(kKeyHeads, kKeyDim),
             .v = random(kValueHeads, kValueDim),
             .decay = -random(kValueHeads, 1).squeeze(3).exp() * 0.3,
             .beta = random(kValueHeads, 1).squeeze(3).sigmoid()};
  made.dy = random(kValueHeads, kValueDim);
  for (Tensor* tensor : made.tensors()) tensor->requires_grad_();
  return made;
}

Tensor by_token(const DeltaRuleInputs& in, const Tensor& first_keys) {
  const auto unit = [](const Tensor& x) {
    return (x * (x.square().sum(-1, true) + 1e-6).rsqrt())
        .repeat_interleave(kValueHeads / kKeyHeads, 2);
  };
  const Tensor q = unit(in.q) / std::sqrt(static_cast<double>(kKeyDim)), k = unit(in.k);
  const int64_t batch = q.size(0), seq = q.size(1);
  Tensor state = torch::zeros({batch, kValueHeads, kKeyDim, kValueDim});
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < seq; ++t) {
    const auto at = [&](const Tensor& x) { return x.select(1, t); };
    if (first_keys.defined())
      state = state * first_keys.select(1, t).ne(t).to(torch::kFloat).view({batch, 1, 1, 1});
    state = state * at(in.decay).exp().unsqueeze(-1).unsqueeze(-1);
    const Tensor read = (state * at(k).unsqueeze(-1)).sum(-2);
    const Tensor correction = (at(in.v) - read) * at(in.beta).unsqueeze(-1);
    state = state + at(k).unsqueeze(-1) * correction.unsqueeze(-2);
    outputs.push_back((state * at(q).unsqueeze(-1)).sum(-2));
  }
  return at::stack(outputs, 1);
}

// Returns the output, then the gradients of all inputs.
std::vector<Tensor> results(Case& made, const Tensor& y) {
  y.backward(made.dy);
  std::vector<Tensor> found = {y.detach()};
  for (Tensor* tensor : made.tensors()) {
    found.push_back(tensor->grad());
    tensor->mutable_grad() = Tensor();
  }
  return found;
}

void check_equal(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(actual[i].sizes() == expected[i].sizes());
    // A decay of nothing has no gradient.
    const bool is_zero = expected[i].abs().max().item<double>() == 0;
    CHECK((is_zero ? actual[i].abs().max().item<double>() : difference(actual[i], expected[i])) <
          1e-5);
  }
}

// The first keys of rows of samples with these lengths.
Tensor first_keys_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<Tensor> keys;
  for (const auto& lengths : rows) {
    std::vector<Tensor> own;
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      own.push_back(torch::full({length}, begin, torch::kLong));
      begin += length;
    }
    keys.push_back(at::cat(own));
  }
  return at::stack(keys);
}

}  // namespace

TEST_CASE("in chunks the rule has the outputs and gradients of token after token") {
  for (const int64_t seq : {1, 5, 64, 65, 150}) {
    CAPTURE(seq);
    Case made = make_case(2, seq);
    const auto expected = results(made, by_token(made.in, {}));
    check_equal(results(made, gated_delta_rule(made.in)), expected);
  }
}

TEST_CASE("the state of each sample begins at zero, wherever chunks begin") {
  Case made = make_case(2, 150);
  const Tensor first_keys = first_keys_of({{64, 86}, {1, 62, 2, 70, 15}});
  const auto expected = results(made, by_token(made.in, first_keys));
  check_equal(results(made, gated_delta_rule(made.in, {.first_keys = first_keys})), expected);
  CHECK(difference(gated_delta_rule(made.in), expected[0]) > 1e-3);
}

TEST_CASE("heads that are computed one after the other have the results of all at once") {
  Case made = make_case(2, 70);
  const auto expected = results(made, gated_delta_rule(made.in));
  check_equal(results(made, gated_delta_rule(made.in, {.max_temporary = 1})), expected);
}

TEST_CASE("states that vanish at once leave nothing but the token's own value") {
  Case made = make_case(1, 130);
  made.in.decay = torch::full({1, 130, kValueHeads}, -200.0);
  const Tensor y = gated_delta_rule(made.in);
  CHECK(difference(y, by_token(made.in, {})) < 1e-5);
  y.backward(made.dy);
  CHECK(made.in.k.grad().isfinite().all().item<bool>());
}

TEST_CASE("inputs of 16 bits are widened, and their gradients rounded once") {
  Case made = make_case(2, 100);
  for (Tensor* tensor : {&made.in.q, &made.in.k, &made.in.v})
    *tensor = tensor->detach().to(torch::kBFloat16).requires_grad_();
  const Tensor y = gated_delta_rule(made.in);
  CHECK((y.scalar_type() == torch::kBFloat16));
  DeltaRuleInputs wide = made.in;
  for (Tensor* tensor : {&wide.q, &wide.k, &wide.v}) *tensor = tensor->to(torch::kFloat);
  const Tensor expected = gated_delta_rule(wide);
  CHECK(torch::equal(y, expected.to(torch::kBFloat16)));
  const auto rounded = torch::autograd::grad({y}, {made.in.k}, {made.dy.to(torch::kBFloat16)});
  const auto exact =
      torch::autograd::grad({expected}, {wide.k}, {made.dy.to(torch::kBFloat16).to(torch::kFloat)});
  CHECK(torch::equal(rounded[0], exact[0].to(torch::kBFloat16)));
}

}  // namespace zeroth::model::delta_rule_test
