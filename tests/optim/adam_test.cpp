#include "optim/adam.h"

#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <string>
#include <vector>

#include "tests/optim/fixtures.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {

namespace {

using Kind = configs::OptimizerConfig::Kind;

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().max().item<double>();
}

template <typename Options>
Options torch_options(const configs::OptimizerConfig& config) {
  return Options(/*lr=*/1e-3)
      .betas({config.betas[0], config.betas[1]})
      .eps(config.eps)
      .weight_decay(config.weight_decay);
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const configs::OptimizerConfig& config,
                                                         const torch::Tensor& weight) {
  const std::vector<torch::Tensor> weights = {weight};
  if (config.kind == Kind::kAdamW) {
    return std::make_unique<torch::optim::AdamW>(weights,
                                                 torch_options<torch::optim::AdamWOptions>(config));
  }
  return std::make_unique<torch::optim::Adam>(weights,
                                              torch_options<torch::optim::AdamOptions>(config));
}

}  // namespace

TEST_CASE("Adam and AdamW take the paths of torch.optim") {
  for (const nlohmann::json& fixture : load_fixture("adam.json")) {
    const bool decoupled = fixture["kind"] == "AdamW";
    const Adam rule({.kind = decoupled ? Kind::kAdamW : Kind::kAdam,
                     .betas = fixture["betas"],
                     .eps = fixture["eps"],
                     .weight_decay = fixture["weight_decay"]});
    REQUIRE(fixture["lr"] == 1e-3);
    const int64_t count = static_cast<int64_t>(fixture["masters"]["1"].size());
    CAPTURE(count);
    CAPTURE(fixture["kind"].dump());
    CAPTURE(fixture["weight_decay"].dump());
    CAPTURE(fixture["grad_factor"].dump());
    FlatState state(rule, initial(count));
    int compared = 0;
    for (int64_t update = 1; update <= 50; ++update) {
      CAPTURE(update);
      state.apply(rule, gradient(count, update), update, fixture["grad_factor"]);
      const auto expected = fixture["masters"].find(std::to_string(update));
      if (expected == fixture["masters"].end()) continue;
      const std::vector<double> masters = *expected;
      CHECK(largest_difference(state.master, torch::tensor(masters, torch::kFloat64)) < 1e-7);
      ++compared;
    }
    CHECK(compared == 3);
  }
}

TEST_CASE("Adam and AdamW equal LibTorch's unfused optimizers at odd lengths") {
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam}) {
    for (const double weight_decay : {0.0, 0.1}) {
      for (const int64_t count : {1, 7, 1000, 65537}) {
        const configs::OptimizerConfig config{.kind = kind, .weight_decay = weight_decay};
        const Adam rule(config);
        FlatState state(rule, initial(count));
        torch::Tensor weight = initial(count).set_requires_grad(true);
        const auto reference = torch_optimizer(config, weight);
        for (int64_t update = 1; update <= 50; ++update) {
          weight.mutable_grad() = gradient(count, update);
          reference->step();
          state.apply(rule, gradient(count, update), update);
        }
        CAPTURE(weight_decay);
        CAPTURE(count);
        CHECK(largest_difference(state.master, weight.detach()) < 1e-7);
      }
    }
  }
}

TEST_CASE("decay is decoupled for AdamW and part of the gradient for Adam") {
  const auto after_one_update = [](Kind kind) {
    const Adam rule({.kind = kind, .weight_decay = 0.5});
    FlatState state(rule, at::full({1}, 2.0));
    state.apply(rule, at::zeros({1}), 1);
    return state.master.item<double>();
  };
  // Without a gradient AdamW only shrinks the weight; Adam takes one whole step down the decay.
  CHECK(after_one_update(Kind::kAdamW) == doctest::Approx(2.0 * (1 - 1e-3 * 0.5)).epsilon(1e-7));
  CHECK(after_one_update(Kind::kAdam) == doctest::Approx(2.0 - 1e-3).epsilon(1e-7));
}

TEST_CASE("the moments are named as in checkpoints") {
  const Adam rule({});
  REQUIRE(rule.state_names().size() == 2);
  CHECK(rule.state_names()[0] == "exp_avg");
  CHECK(rule.state_names()[1] == "exp_avg_sq");
  FlatState state(rule, at::zeros({1}));
  state.apply(rule, at::full({1}, 2.0), 1);
  CHECK(state.states[0].item<double>() == doctest::Approx(0.1 * 2).epsilon(1e-6));
  CHECK(state.states[1].item<double>() == doctest::Approx(0.001 * 4).epsilon(1e-6));
}

}  // namespace zeroth::optim
