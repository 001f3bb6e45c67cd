#include "model/blocks/main_grad.h"

#include <doctest/doctest.h>

namespace zeroth::model::main_grad_test {

using torch::Tensor;

TEST_CASE("without an open view the gradient goes back in the parameter's dtype") {
  const Tensor parameter = torch::zeros({2}, torch::kBFloat16).requires_grad_();
  const Tensor back = accumulate_grad(parameter, torch::ones({2}));
  CHECK((back.scalar_type() == torch::kBFloat16));
  CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("an open view takes the gradient and nothing goes back") {
  const Tensor parameter = torch::zeros({2}, torch::kBFloat16).requires_grad_();
  parameter.mutable_grad() = torch::full({2}, 256.0);
  CHECK_FALSE(accumulate_grad(parameter, torch::ones({2}, torch::kBFloat16)).defined());
  CHECK(torch::equal(parameter.grad(), torch::full({2}, 257.0)));
}

TEST_CASE("a product is added in the view's precision") {
  const Tensor a = torch::ones({3, 2}), b = torch::ones({3, 4});
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const Tensor parameter = torch::zeros({2, 4}).requires_grad_();
    CHECK(torch::equal(accumulate_wgrad(parameter, a, b), torch::full({2, 4}, 3.0)));
    parameter.mutable_grad() = torch::ones({2, 4}, dtype);
    CHECK_FALSE(accumulate_wgrad(parameter, a, b).defined());
    CHECK(torch::equal(parameter.grad(), torch::full({2, 4}, 4.0, dtype)));
  }
}

}  // namespace zeroth::model::main_grad_test
