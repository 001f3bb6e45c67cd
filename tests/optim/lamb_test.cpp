#include "optim/lamb.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/optim/fixture_path.h"

namespace zeroth::optim {
namespace {

using Kind = configs::OptimizerConfig::Kind;
using torch::Tensor;

constexpr configs::OptimizerConfig kLamb = {.kind = Kind::kLamb, .weight_decay = 0.1};

struct Updated {
  Tensor master, first, second;
};

// Three parameters, of which the second does not decay, after three updates in tiles.
constexpr int64_t kCount = 70'000;
const std::vector<ParamGroupRange> kParameters = {
    {0, 30'000, true, 0}, {30'016, 30'100, false, 1}, {30'144, kCount, true, 2}};

Updated updated(const UpdateRule& rule, const std::vector<int64_t>& bounds) {
  Updated all = {initial(kCount), at::zeros({kCount}), at::zeros({kCount})};
  const auto visit = [&](int64_t update, const Tensor& ratios, const auto& use) {
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const auto part = [&](const Tensor& x) { return x.slice(0, bounds[i], bounds[i + 1]); };
      std::vector<Tensor> states = {part(all.first), part(all.second)};
      std::vector<ParamGroupRange> param_groups;
      for (const auto& [begin, end, decays, parameter] : kParameters) {
        const int64_t from = std::max(begin, bounds[i]), to = std::min(end, bounds[i + 1]);
        if (from < to)
          param_groups.push_back({from - bounds[i], to - bounds[i], decays, parameter});
      }
      UpdateRule::Chunk chunk = {part(all.master), part(gradient(kCount, update)), states};
      chunk.ratios = ratios;
      use(chunk, param_groups);
    }
  };
  for (int64_t update = 1; update <= 3; ++update) {
    UpdateStep step = default_step(kLamb, update);
    step.grad_factor = 0.3;
    const Tensor sums = at::zeros({3, 2}, torch::kDouble);
    visit(update, {},
          [&](const UpdateRule::Chunk& chunk, const std::vector<ParamGroupRange>& param_groups) {
            rule.norm_pass()->sum(chunk, step, param_groups, sums);
          });
    visit(update, rule.norm_pass()->ratios(sums),
          [&](const UpdateRule::Chunk& chunk, const std::vector<ParamGroupRange>& param_groups) {
            rule.apply_param_groups(chunk, step, param_groups);
          });
  }
  return all;
}

}  // namespace

TEST_CASE("Lamb takes the path of DeepSpeed's formula, whatever bounds its ratio") {
  for (const nlohmann::json& fixture : load_fixture("lamb.json")) {
    const nlohmann::json& params = fixture["params"];
    const configs::OptimizerConfig usual = {.kind = Kind::kLamb};
    expect_path(fixture, {.kind = Kind::kLamb,
                          .betas = params.value("betas", usual.betas),
                          .eps = params.value("eps", usual.eps),
                          .bias_correction = params.value("bias_correction", true),
                          .eps_inside_sqrt = params.value("eps_inside_sqrt", false),
                          .max_coeff = params.value("max_coeff", usual.max_coeff),
                          .min_coeff = params.value("min_coeff", usual.min_coeff)});
  }
}

TEST_CASE("each parameter steps by its own norms, and tiles that cut it change no bit") {
  for (const RuleMaker make : kRuleMakers) {
    const auto rule = make(kLamb);
    const Updated whole = updated(*rule, {0, kCount});
    for (const auto& [begin, end, decays, number] : kParameters) {
      configs::OptimizerConfig config = kLamb;
      if (!decays) config.weight_decay = 0;
      FlatState alone(config, initial(kCount).slice(0, begin, end).clone(), make);
      for (int64_t update = 1; update <= 3; ++update) {
        alone.apply(gradient(kCount, update).slice(0, begin, end).clone(), update, 0.3);
      }
      CAPTURE(number);
      CHECK(whole.master.slice(0, begin, end).equal(alone.master));
      CHECK(whole.first.slice(0, begin, end).equal(alone.states[0]));
      CHECK(whole.second.slice(0, begin, end).equal(alone.states[1]));
    }
    // What belongs to no parameter stays.
    CHECK(whole.master.slice(0, 30'100, 30'144).equal(initial(kCount).slice(0, 30'100, 30'144)));
    for (const std::vector<int64_t>& bounds : {std::vector<int64_t>{0, 64, 128, 30'080, kCount},
                                               {0, 25'600, 30'016, 30'144, 51'200, kCount}}) {
      const Updated tiled = updated(*rule, bounds);
      CHECK(tiled.master.equal(whole.master));
      CHECK(tiled.first.equal(whole.first));
      CHECK(tiled.second.equal(whole.second));
    }
  }
}

TEST_CASE("a parameter or a direction of zeros has the ratio 1, others are bounded") {
  const Lamb lamb({.kind = Kind::kLamb});
  const Tensor sums = torch::tensor({{0.0, 4.0}, {4.0, 0.0}, {16.0, 4.0}, {1e6, 1e-2}, {1e-6, 1e2}},
                                    torch::kDouble);
  CHECK(lamb.norm_pass()->ratios(sums).equal(torch::tensor({1.0F, 1.0F, 2.0F, 10.0F, 0.01F})));
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Tensor spoilt = torch::tensor({{kNan, 1.0}, {1.0, kNan}}, torch::kDouble);
  CHECK(lamb.norm_pass()->ratios(spoilt).isnan().all().item<bool>());
}

TEST_CASE("a step without ratios, and norms once there are ratios, are refused") {
  for (const RuleMaker make : kRuleMakers) {
    const auto rule = make(kLamb);
    FlatState state(kLamb, initial(8), make);
    const UpdateStep step = default_step(kLamb, 1);
    const ParamGroupRange whole{0, 8};
    UpdateRule::Chunk chunk = {state.master, gradient(8, 1), state.states};
    CHECK_THROWS_AS(rule->apply(chunk, step), InternalError);
    chunk.ratios = torch::ones({1});
    CHECK_THROWS_AS(
        rule->norm_pass()->sum(chunk, step, {&whole, 1}, at::zeros({1, 2}, torch::kDouble)),
        InternalError);
    CHECK(state.master.equal(initial(8)));
    CHECK(rule->state_names().size() == 2);
    CHECK(rule->state_names()[1] == "exp_avg_sq");
  }
}

}  // namespace zeroth::optim
