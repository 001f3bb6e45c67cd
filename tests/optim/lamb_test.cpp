#include "optim/lamb.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/optim/cpu_arrays.h"
#include "tests/optim/fixture_path.h"

namespace zeroth::optim::lamb_test {
namespace {

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

struct Result {
  Tensor master, first, second, copy;

  bool equal(const Result& other) const {
    return master.equal(other.master) && first.equal(other.first) && second.equal(other.second) &&
           (!copy.defined() || copy.equal(other.copy));
  }
};

// One parameter after three updates.
Result after(const UpdateRule& rule, int64_t count, torch::Dtype grad,
             std::optional<torch::Dtype> copy) {
  Result all = {initial(count), at::zeros({count}), at::zeros({count}), {}};
  if (copy) all.copy = at::zeros({count}, *copy);
  std::vector<Tensor> states = {all.first, all.second};
  for (int64_t update = 1; update <= 3; ++update) {
    UpdateStep step = default_step(kLamb, update);
    step.grad_factor = 0.37;
    update_parameter(rule, {all.master, gradient(count, update).to(grad), states, all.copy}, step);
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
  const Tensor sums =
      torch::tensor({0.0, 4.0, 4.0, 0.0, 16.0, 4.0, 1e6, 1e-2, 1e-6, 1e2}, torch::kDouble)
          .view({5, 2});
  CHECK(lamb.norm_pass()->ratios(sums).equal(torch::tensor({1.0F, 1.0F, 2.0F, 10.0F, 0.01F})));
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Tensor spoilt = torch::tensor({kNan, 1.0, 1.0, kNan}, torch::kDouble).view({2, 2});
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

TEST_CASE("Lamb on the host has the same bits at every level, and rounds its copy of the weights") {
  for (const int64_t count : {1, 7, 16, 33, 100, 4'099, 70'001}) {
    for (const auto grad : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      for (const auto copy : {torch::kBFloat16, torch::kHalf}) {
        const Result plain = after(CpuLamb(kLamb, CpuIsa::kBaseline), count, grad, copy);
        CAPTURE(count);
        CHECK(plain.copy.equal(plain.master.to(copy)));
        for (const CpuIsa level : cpu_levels()) {
          CHECK(after(CpuLamb(kLamb, level), count, grad, copy).equal(plain));
          CHECK(after(CpuLamb(kLamb, level), count, grad, {}).master.equal(plain.master));
        }
      }
    }
  }
}

TEST_CASE("Lamb on the host follows LibTorch's operators") {
  for (const bool inside : {false, true}) {
    OptimizerConfig config = kLamb;
    config.eps_inside_sqrt = inside;
    for (const auto grad : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      const Result host = after(CpuLamb(config), 70'001, grad, torch::kBFloat16);
      const Result tensors = after(Lamb(config), 70'001, grad, torch::kBFloat16);
      CHECK(host.master.allclose(tensors.master, /*rtol=*/1e-6, /*atol=*/1e-7));
      CHECK(host.first.allclose(tensors.first, /*rtol=*/1e-6, /*atol=*/1e-7));
      CHECK(host.second.allclose(tensors.second, /*rtol=*/1e-6, /*atol=*/1e-9));
    }
  }
}

TEST_CASE("the number of threads does not change Lamb's norms") {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result alone = after(CpuLamb(kLamb), 300'001, torch::kFloat, {});
  for (const int more : {2, 3, 5}) {
    at::set_num_threads(more);
    CHECK(after(CpuLamb(kLamb), 300'001, torch::kFloat, {}).equal(alone));
  }
  at::set_num_threads(threads);
}

TEST_CASE("the norms of long parameters are summed in fp64") {
  constexpr int64_t kLong = int64_t{5} << 20;  // more than a part of the rule
  for (const bool host : {false, true}) {
    const auto rule = host ? make_update_rule(kLamb, torch::kCPU) : make_tensor_rule(kLamb);
    const Tensor master = at::full({kLong}, 0.1F), sums = at::zeros({1, 2}, torch::kDouble);
    std::vector<Tensor> states = {at::zeros({kLong}), at::zeros({kLong})};
    const ParamGroupRange whole{0, kLong};
    rule->norm_pass()->sum({master, at::zeros({kLong}), states}, default_step(kLamb, 1),
                           {&whole, 1}, sums);
    const double square = double{0.1F} * double{0.1F} * static_cast<double>(kLong);
    CHECK(sums[0][0].item<double>() == doctest::Approx(square).epsilon(1e-12));
    const double decay = double{0.1F * 0.1F} * double{0.1F * 0.1F} * static_cast<double>(kLong);
    CHECK(sums[0][1].item<double>() == doctest::Approx(decay).epsilon(1e-7));
  }
}

TEST_CASE("a tile elsewhere, or a level that is not there, is refused") {
  const Tensor elsewhere = at::zeros({8}, torch::Device(torch::kMeta));
  std::vector<Tensor> states = {elsewhere, elsewhere};
  const ParamGroupRange whole{0, 8};
  CHECK_THROWS_AS(
      CpuLamb(kLamb).norm_pass()->sum({elsewhere, elsewhere, states}, default_step(kLamb, 1),
                                      {&whole, 1}, at::zeros({1, 2}, torch::kDouble)),
      InternalError);
  if (detected_cpu_isa() < CpuIsa::kAvx512) {
    CHECK_THROWS_AS(CpuLamb(kLamb, CpuIsa::kAvx512), InternalError);
  }
}

}  // namespace zeroth::optim::lamb_test
