#include "optim/sgd.h"

#include <doctest/doctest.h>

#include "tests/optim/fixture_path.h"

namespace zeroth::optim {

using Kind = configs::OptimizerConfig::Kind;

TEST_CASE("SGD takes the path of torch.optim, with momentum, dampening and Nesterov") {
  for (const nlohmann::json& fixture : load_fixture("sgd.json")) {
    const nlohmann::json& params = fixture["params"];
    expect_path(fixture,
                {.kind = Kind::kSgd,
                 .momentum = params["momentum"],
                 .dampening = params["dampening"],
                 .nesterov = params["nesterov"]},
                /*tolerance=*/5e-7);
  }
}

TEST_CASE("SGD without momentum keeps no state") {
  CHECK(Sgd({.kind = Kind::kSgd}).state_names().empty());
  CHECK(Sgd({.kind = Kind::kSgd, .momentum = 0.9}).state_names().size() == 1);
}

}  // namespace zeroth::optim
