#include "optim/adam.h"

#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <string>
#include <vector>

#include "tests/optim/fixture_path.h"

namespace zeroth::optim {

namespace {

using Kind = configs::OptimizerConfig::Kind;

template <typename Options>
Options torch_options(const configs::OptimizerConfig& config) {
  return Options(config.lr)
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

TEST_CASE("Adam and AdamW take the paths of torch.optim, and without bias correction DeepSpeed's") {
  for (const nlohmann::json& fixture : load_fixture("adam.json")) {
    const nlohmann::json& params = fixture["params"];
    expect_path(fixture, {.kind = fixture["kind"] == "AdamW" ? Kind::kAdamW : Kind::kAdam,
                          .betas = params["betas"],
                          .eps = params["eps"],
                          .bias_correction = params.value("bias_correction", true)});
  }
}

TEST_CASE("Adam and AdamW equal LibTorch's unfused optimizers at odd lengths") {
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam}) {
    for (const double weight_decay : {0.0, 0.1}) {
      for (const int64_t count : {1, 7, 1000, 65537}) {
        const configs::OptimizerConfig config{.kind = kind, .weight_decay = weight_decay};
        FlatState state(config, initial(count));
        torch::Tensor weight = initial(count).set_requires_grad(true);
        const auto reference = torch_optimizer(config, weight);
        for (int64_t update = 1; update <= 50; ++update) {
          weight.mutable_grad() = gradient(count, update);
          reference->step();
          state.apply(gradient(count, update), update);
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
    FlatState state({.kind = kind, .weight_decay = 0.5}, at::full({1}, 2.0));
    state.apply(at::zeros({1}), 1);
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
  FlatState state({}, at::zeros({1}));
  state.apply(at::full({1}, 2.0), 1);
  CHECK(state.states[0].item<double>() == doctest::Approx(0.1 * 2).epsilon(1e-6));
  CHECK(state.states[1].item<double>() == doctest::Approx(0.001 * 4).epsilon(1e-6));
}

TEST_CASE("betas and decay may change from update to update") {
  const configs::OptimizerConfig config;
  FlatState state(config, initial(65));
  torch::Tensor weight = initial(65).set_requires_grad(true);
  const auto reference = torch_optimizer(config, weight);
  for (int64_t update = 1; update <= 20; ++update) {
    UpdateStep step = default_step(config, update);
    step.betas = {0.8 + 0.005 * static_cast<double>(update), 0.99};
    step.weight_decay = 0.01 * static_cast<double>(update % 3);
    auto& options =
        static_cast<torch::optim::AdamWOptions&>(reference->param_groups()[0].options());
    options.betas({step.betas[0], step.betas[1]}).weight_decay(step.weight_decay);
    weight.mutable_grad() = gradient(65, update);
    reference->step();
    state.rule->apply({state.master, gradient(65, update), state.states}, step);
  }
  CHECK(largest_difference(state.master, weight.detach()) < 1e-7);
}

}  // namespace zeroth::optim
