#include "model/blocks/main_grad.h"

#include <doctest/doctest.h>

#include <cmath>

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

TEST_CASE("a gradient that is delivered in several parts is added up, whatever was there before") {
  const Tensor parameter = torch::zeros({2, 4}).requires_grad_();
  const Tensor a = torch::ones({3, 2}), b = torch::ones({3, 4});
  const Tensor view = torch::full({2, 4}, NAN);
  parameter.mutable_grad() = make_main_grad(view, /*unwritten=*/true);
  for (int part = 1; part <= 3; ++part) {
    CHECK_FALSE(accumulate_wgrad(parameter, a, b).defined());
    CHECK_FALSE(accumulate_grad(parameter, torch::ones({2, 4})).defined());
    CHECK(torch::equal(view, torch::full({2, 4}, 4.0 * part)));
  }
}

TEST_CASE(
    "deferred gradients are delivered later, in their order, to the views that are open then") {
  const Tensor one = torch::zeros({2, 4}).requires_grad_(),
               two = torch::zeros({2, 4}).requires_grad_();
  const Tensor a = torch::ones({3, 4}), b = torch::ones({3, 4});
  DeferredGrads deferred;
  deferred.begin({one, two}, /*accumulates=*/true);
  CHECK_FALSE(main_grad(one).defined());
  CHECK(accumulate_wgrads({one, two}, a, b));
  CHECK_FALSE(accumulate_grad(two, torch::ones({2, 4})).defined());
  deferred.end({one, two});
  CHECK_FALSE(one.grad().defined());
  for (const bool adjacent : {true, false}) {
    CAPTURE(adjacent);
    const Tensor flat = torch::full({4, 4}, NAN), other = torch::full({2, 4}, NAN);
    one.mutable_grad() = make_main_grad(flat.narrow(0, 0, 2), /*unwritten=*/true);
    two.mutable_grad() = make_main_grad(adjacent ? flat.narrow(0, 2, 2) : other, true);
    if (!adjacent) {  // the first time all was delivered
      deferred.replay();
      CHECK_FALSE(was_written(one.grad(), /*unwritten=*/true));
      continue;
    }
    deferred.replay();
    CHECK(torch::equal(flat.narrow(0, 0, 2), torch::full({2, 4}, 3.0)));
    CHECK(torch::equal(flat.narrow(0, 2, 2), torch::full({2, 4}, 4.0)));
  }
}

TEST_CASE("deferred gradients of one product are delivered apart if their views are") {
  const Tensor one = torch::zeros({2, 4}).requires_grad_(),
               two = torch::zeros({1, 4}).requires_grad_();
  const Tensor a = torch::arange(9, torch::kFloat).view({3, 3}), b = torch::ones({3, 4});
  DeferredGrads deferred;
  deferred.begin({one, two}, /*accumulates=*/true);
  CHECK(accumulate_wgrads({one, two}, a, b));
  deferred.end({one, two});
  one.mutable_grad() = make_main_grad(torch::full({2, 4}, NAN), /*unwritten=*/true);
  two.mutable_grad() = torch::ones({1, 4});
  deferred.replay();
  const Tensor product = a.t().mm(b);
  CHECK(torch::equal(one.grad(), product.narrow(0, 0, 2)));
  CHECK(torch::equal(two.grad(), product.narrow(0, 2, 1) + 1));
}

}  // namespace zeroth::model::main_grad_test
