#include "optim/rule_checks.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {

TEST_CASE("a gradient factor becomes a divisor, or a pass where no divisor can hold it") {
  const torch::Tensor grad = at::full({4}, 3.0f);
  CHECK_FALSE(fold_factor(grad, 1).has_value());
  CHECK(fold_factor(grad, 0.25)->item<float>() == 4.0f);
  CHECK(grad.eq(3.0f).all().item<bool>());
  CHECK_FALSE(fold_factor(grad, 1e-40).has_value());
  CHECK(grad.lt(1e-39f).all().item<bool>());
}

TEST_CASE("states of another length, dtype or number are refused") {
  FlatState state({}, initial(8));
  const UpdateStep step = default_step({}, 1);
  CHECK_NOTHROW(check_arguments(*state.rule, {state.master, gradient(8, 1), state.states}, step));
  state.states[1] = at::zeros({7});
  CHECK_THROWS_AS(check_arguments(*state.rule, {state.master, gradient(8, 1), state.states}, step),
                  InternalError);
  state.states[1] = at::zeros({8});
  for (const torch::Tensor& copy : {at::zeros({8}), at::zeros({7}, torch::kHalf)}) {
    CHECK_THROWS_AS(
        check_arguments(*state.rule, {state.master, gradient(8, 1), state.states, copy}, step),
        InternalError);
  }
  state.states[1] = at::zeros({8}, torch::kDouble);
  CHECK_THROWS_AS(check_arguments(*state.rule, {state.master, gradient(8, 1), state.states}, step),
                  InternalError);
}

}  // namespace zeroth::optim
