#include "optim/update_rule.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim::update_rule_test {

namespace {

using Kind = configs::OptimizerConfig::Kind;

struct Rule {
  configs::OptimizerConfig config;
  RuleMaker make;

  FlatState state(int64_t count) const { return FlatState(config, initial(count), make); }
};

// Every rule must pass these cases.
std::vector<Rule> all_rules() {
  std::vector<configs::OptimizerConfig> configs;
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam, Kind::kLion, Kind::kSgd, Kind::kAdagrad}) {
    configs.push_back({.kind = kind, .weight_decay = 0.1});
  }
  configs.push_back({.kind = Kind::kSgd, .momentum = 0.9, .dampening = 0.1});
  configs.push_back({.kind = Kind::kSgd, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true});
  std::vector<Rule> rules;
  for (const RuleMaker make : kRuleMakers) {
    for (const configs::OptimizerConfig& config : configs) rules.push_back({config, make});
  }
  return rules;
}

bool bit_equal(const FlatState& a, const FlatState& b) {
  bool equal = a.master.equal(b.master);
  for (size_t i = 0; i < a.states.size(); ++i) equal = equal && a.states[i].equal(b.states[i]);
  return equal;
}

FlatState run_in_tiles(const Rule& rule, const std::vector<int64_t>& bounds) {
  const int64_t count = bounds.back();
  FlatState state = rule.state(count);
  for (int64_t update = 1; update <= 10; ++update) {
    const torch::Tensor grad = gradient(count, update);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      state.apply_chunk(grad, update, bounds[i], bounds[i + 1]);
    }
  }
  return state;
}

}  // namespace

TEST_CASE("a range gives the same bits whole and in aligned tiles") {
  const int64_t align = UpdateRule::kChunkAlignment;
  for (const Rule& rule : all_rules()) {
    const FlatState whole = run_in_tiles(rule, {0, 65537});
    CHECK(!whole.master.equal(initial(65537)));
    for (const std::vector<int64_t>& bounds : {std::vector<int64_t>{0, 30016, 65537},
                                               {0, align, 2 * align, 65536, 65537},
                                               {0, 63 * align, 64 * align, 700 * align, 65537}}) {
      CHECK(bit_equal(run_in_tiles(rule, bounds), whole));
    }
  }
}

TEST_CASE("the number of threads does not change the bits") {
  const int threads = at::get_num_threads();
  for (const Rule& rule : all_rules()) {
    at::set_num_threads(1);
    const FlatState alone = run_in_tiles(rule, {0, 65537});
    at::set_num_threads(3);
    CHECK(bit_equal(run_in_tiles(rule, {0, 65537}), alone));
  }
  at::set_num_threads(threads);
}

TEST_CASE("a gradient factor equals a gradient multiplied beforehand") {
  // 1e-40 has no normal fp32 reciprocal.
  for (const double factor : {1.0 / 1024, 0.3, 3.0, 1e-40}) {
    for (const Rule& rule : all_rules()) {
      CAPTURE(factor);
      FlatState folded = rule.state(1000);
      FlatState beforehand = rule.state(1000);
      for (int64_t update = 1; update <= 5; ++update) {
        // No element is near 0, where the sign that Lion follows would be one of rounding.
        const torch::Tensor grad = (gradient(1000, update) + 2) * 0.01;
        const torch::Tensor large = (grad.to(torch::kDouble) / factor).to(torch::kFloat);
        folded.apply(large, update, factor);
        beforehand.apply(grad, update);
      }
      CHECK(folded.master.isfinite().all().item<bool>());
      CHECK(folded.master.allclose(beforehand.master, /*rtol=*/0, /*atol=*/2e-6));
    }
  }
}

TEST_CASE("a power of two as gradient factor costs no bit") {
  for (const Rule& rule : all_rules()) {
    FlatState scaled = rule.state(1000);
    FlatState plain = rule.state(1000);
    for (int64_t update = 1; update <= 5; ++update) {
      scaled.apply(gradient(1000, update) * 65536, update, 1.0 / 65536);
      plain.apply(gradient(1000, update), update);
    }
    CHECK(bit_equal(scaled, plain));
  }
}

TEST_CASE("an empty range is updated to an empty range") {
  for (const Rule& rule : all_rules()) {
    FlatState state = rule.state(0);
    CHECK_NOTHROW(state.apply(gradient(0, 1), 1, 0.5));
  }
}

TEST_CASE("a rule refuses what would spoil the weights") {
  for (const Rule& rule : all_rules()) {
    FlatState state = rule.state(8);
    for (const double factor : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()}) {
      CHECK_THROWS_AS(state.apply(gradient(8, 1), 1, factor), InternalError);
    }
    CHECK_THROWS_AS(state.apply(gradient(8, 1), 0), InternalError);
    CHECK_THROWS_AS(state.apply(gradient(7, 1), 1), InternalError);
    CHECK_THROWS_AS(state.apply(gradient(8, 1).to(torch::kDouble), 1), InternalError);
    CHECK_THROWS_AS(state.apply(gradient(16, 1).slice(0, 0, 16, 2), 1), InternalError);
    state.states.emplace_back();
    CHECK_THROWS_AS(state.apply(gradient(8, 1), 1), InternalError);
    CHECK(state.master.equal(initial(8)));
  }
}

TEST_CASE("a 16-bit gradient is as its numbers in fp32, and a copy is the new master rounded") {
  for (const Rule& rule : all_rules()) {
    for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
      FlatState wide = rule.state(1000), narrow = rule.state(1000);
      const torch::Tensor copy = at::zeros({1000}, dtype);
      for (int64_t update = 1; update <= 3; ++update) {
        const torch::Tensor grad = gradient(1000, update).to(dtype);
        wide.apply(grad.to(torch::kFloat), update, 0.3);
        narrow.rule->apply({narrow.master, grad, narrow.states, copy}, narrow.step(update, 0.3));
        CHECK(copy.equal(narrow.master.to(dtype)));
      }
      CHECK(bit_equal(wide, narrow));
    }
  }
}

TEST_CASE("states of another length, dtype or number are refused") {
  FlatState state({}, initial(8));
  const UpdateStep step = default_step({}, 1);
  CHECK_NOTHROW(state.rule->check_arguments({state.master, gradient(8, 1), state.states}, step));
  state.states[1] = at::zeros({7});
  CHECK_THROWS_AS(state.rule->check_arguments({state.master, gradient(8, 1), state.states}, step),
                  InternalError);
  state.states[1] = at::zeros({8});
  for (const torch::Tensor& copy : {at::zeros({8}), at::zeros({7}, torch::kHalf)}) {
    CHECK_THROWS_AS(
        state.rule->check_arguments({state.master, gradient(8, 1), state.states, copy}, step),
        InternalError);
  }
  state.states[1] = at::zeros({8}, torch::kDouble);
  CHECK_THROWS_AS(state.rule->check_arguments({state.master, gradient(8, 1), state.states}, step),
                  InternalError);
}

}  // namespace zeroth::optim::update_rule_test
