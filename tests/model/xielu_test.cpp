#include "model/blocks/mlp.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::xielu_test {
namespace {

using torch::Tensor;

Parameters give_values(const Xielu& xielu, torch::ScalarType dtype) {
  Parameters parameters = randomise(xielu);
  const auto set = [&](const char* name, const Tensor& value) {
    give_memory(parameters[name], value.to(dtype));
  };
  set("alpha_p", torch::tensor({0.7}));
  set("alpha_n", torch::tensor({-0.4}));
  set("beta", torch::tensor(0.5));
  set("eps", torch::tensor(-1e-2));
  return parameters;
}

// In fp64, differentiated by autograd.
Tensor formula(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n, double beta,
               double eps) {
  const Tensor above = x * x * at::softplus(alpha_p);
  const Tensor below = (at::expm1(x.clamp_max(eps)) - x) * (at::softplus(alpha_n) + beta);
  return at::where(x > 0, above, below) + beta * x;
}

}  // namespace

TEST_CASE("xIELU and its gradients equal the formula, and 16 bits are rounded once") {
  torch::manual_seed(41);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const double limit = dtype == torch::kFloat32 ? 1e-6 : 5e-3;
    for (const bool open : {false, true}) {
      const Xielu xielu;
      Parameters parameters = give_values(xielu, dtype);
      if (open) define_main_grads(parameters);
      // On both sides of 0 and of eps, at 0, and far away.
      Tensor x = torch::randn({3, 50, 7}).mul(2).to(dtype);
      x[0].mul_(0.01);
      x[1][0].copy_(torch::tensor({0, 30, -30, 88, -90, 3, -3}));
      x.requires_grad_();
      const auto wide = [](const Tensor& t) {
        return t.detach().to(torch::kFloat64).requires_grad_();
      };
      const Tensor wide_x = wide(x), alpha_p = wide(parameters["alpha_p"]),
                   alpha_n = wide(parameters["alpha_n"]);
      const auto constant = [&](const char* name) {
        return parameters[name].to(torch::kFloat64).item<double>();
      };
      const Tensor expected = formula(wide_x, alpha_p, alpha_n, constant("beta"), constant("eps"));
      const Tensor y = xielu.forward(x);
      CHECK((y.scalar_type() == dtype));
      CHECK(difference(y.detach(), expected.detach()) < limit);
      const Tensor dy = torch::randn(x.sizes()).to(dtype);
      y.backward(dy);
      expected.backward(dy.to(torch::kFloat64));
      CHECK(difference(x.grad(), wide_x.grad()) < limit);
      CHECK(difference(parameters["alpha_p"].grad(), alpha_p.grad()) < limit);
      CHECK(difference(parameters["alpha_n"].grad(), alpha_n.grad()) < limit);
      if (!open) CHECK_FALSE(parameters["beta"].grad().defined());
    }
  }
}

}  // namespace zeroth::model::xielu_test
