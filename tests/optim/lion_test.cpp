#include "optim/lion.h"

#include <doctest/doctest.h>

#include "tests/optim/fixture_path.h"

namespace zeroth::optim {

using Kind = configs::OptimizerConfig::Kind;

TEST_CASE("Lion takes the path of DeepSpeed's") {
  for (const nlohmann::json& fixture : load_fixture("lion.json")) {
    // DeepSpeed decays and steps in one rounding, 50 times.
    expect_path(fixture, {.kind = Kind::kLion, .betas = fixture["params"]["betas"]},
                /*tolerance=*/3e-7);
  }
}

TEST_CASE("Lion moves every element by the rate against its direction, after the decay") {
  FlatState state({.kind = Kind::kLion, .lr = 0.5, .weight_decay = 0.2}, at::full({3}, 2.0f));
  state.apply(torch::tensor({3.0f, -1e-6f, 0.0f}), 1);
  CHECK(largest_difference(state.master, torch::tensor({1.3f, 2.3f, 1.3f})) < 1e-6);
  CHECK(state.states[0][0].item<float>() == doctest::Approx(0.003).epsilon(1e-5));
}

TEST_CASE("a range longer than a chunk is updated to its end") {
  constexpr int64_t kCount = 3 * 16384 + 5;
  FlatState state({.kind = Kind::kLion, .lr = 0.25}, at::zeros({kCount}));
  state.apply(at::ones({kCount}), 1);
  CHECK(state.master.eq(-0.25).all().item<bool>());
}

}  // namespace zeroth::optim
