#include "optim/adagrad.h"

#include <doctest/doctest.h>

#include "tests/optim/fixture_path.h"

namespace zeroth::optim {

using Kind = configs::OptimizerConfig::Kind;

TEST_CASE("Adagrad takes the path of torch.optim, from any first sum and with a falling rate") {
  for (const nlohmann::json& fixture : load_fixture("adagrad.json")) {
    const nlohmann::json& params = fixture["params"];
    expect_path(fixture, {.kind = Kind::kAdagrad,
                          .eps = params["eps"],
                          .lr_decay = params["lr_decay"],
                          .initial_accumulator_value = params["initial_accumulator_value"]});
  }
}

TEST_CASE("the sum of squares starts where the configuration says") {
  CHECK(Adagrad({.initial_accumulator_value = 0.5}).initial_state() == 0.5);
}

}  // namespace zeroth::optim
