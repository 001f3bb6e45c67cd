// The paths that other implementations' optimizers take, as tools/make_optim_fixtures.py wrote
// them.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/optim/fixtures.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {

inline double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

// Follows a case's 50 updates under `config` and compares the masters that it kept.
inline void expect_path(const nlohmann::json& fixture, configs::OptimizerConfig config,
                        double tolerance = 1e-7) {
  const nlohmann::json& params = fixture["params"];
  CAPTURE(fixture["kind"].dump());
  CAPTURE(params.dump());
  config.lr = fixture["lr"];
  config.weight_decay = params.value("weight_decay", 0.0);
  const auto count = static_cast<int64_t>(fixture["masters"]["1"].size());
  CAPTURE(count);
  const double factor = fixture["grad_factor"];
  CAPTURE(factor);
  for (const RuleMaker make : kRuleMakers) {
    FlatState state(config, initial(count), make);
    int compared = 0;
    for (int64_t update = 1; update <= 50; ++update) {
      CAPTURE(update);
      state.apply(gradient(count, update), update, factor);
      const auto expected = fixture["masters"].find(std::to_string(update));
      if (expected == fixture["masters"].end()) continue;
      const std::vector<double> masters = *expected;
      CHECK(largest_difference(state.master, torch::tensor(masters, torch::kDouble)) <= tolerance);
      ++compared;
    }
    CHECK(compared == 3);
  }
}

}  // namespace zeroth::optim
