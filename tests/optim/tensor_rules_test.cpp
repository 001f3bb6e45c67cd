#include "optim/update_rule.h"

#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <string>
#include <vector>

#include "optim/kernel_rules.h"
#include "tests/optim/fixture_path.h"

namespace zeroth::optim::tensor_rules_test {

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
  const TensorRule rule({});
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
  CHECK(TensorRule({.kind = Kind::kAdagrad, .initial_accumulator_value = 0.5}).initial_state() ==
        0.5);
}

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
  CHECK(TensorRule({.kind = Kind::kSgd}).state_names().empty());
  CHECK(TensorRule({.kind = Kind::kSgd, .momentum = 0.9}).state_names().size() == 1);
}

TEST_CASE("ranges on the CPU are updated in one pass, those on a GPU by LibTorch's operators") {
  for (const auto kind :
       {configs::OptimizerConfig::Kind::kAdamW, configs::OptimizerConfig::Kind::kLion}) {
    const configs::OptimizerConfig config{.kind = kind};
    CHECK(dynamic_cast<CpuRule*>(make_update_rule(config, torch::kCPU).get()) != nullptr);
    CHECK(dynamic_cast<TensorRule*>(make_update_rule(config, torch::kCUDA).get()) != nullptr);
  }
}

TEST_CASE("a 16-bit gradient is widened into a tensor of its own") {
  FlatState state({}, initial(100));
  const torch::Tensor grad = gradient(100, 1).to(torch::kBFloat16);
  const torch::Tensor before = grad.clone();
  state.apply(grad, 1, 1e-40);  // a factor that takes a pass over the gradient
  CHECK(grad.equal(before));
}

TEST_CASE("a gradient factor becomes a divisor, or a pass where no divisor can hold it") {
  const torch::Tensor grad = at::full({4}, 3.0f);
  CHECK_FALSE(fold_factor(grad, 1).has_value());
  CHECK(fold_factor(grad, 0.25)->item<float>() == 4.0f);
  CHECK(grad.eq(3.0f).all().item<bool>());
  CHECK_FALSE(fold_factor(grad, 1e-40).has_value());
  CHECK(grad.lt(1e-39f).all().item<bool>());
}

}  // namespace zeroth::optim::tensor_rules_test
