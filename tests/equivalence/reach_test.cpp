// The bounds of the table of strategies: what they let pass, and what they find.
#include "tests/equivalence/reach.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/run_row.h"
#include "tests/equivalence/samples.h"

namespace zeroth::equivalence::reach_test {
namespace {

using torch::Tensor;

// a + factor * b, parameter by parameter.
Tensors plus(const Tensors& a, const Tensors& b, double factor) {
  Tensors sum;
  for (const auto& [name, value] : a) sum[name] = value + factor * b.at(name);
  return sum;
}

// The noise of the gradients in the runs below.
constexpr double kNoise = 2e-6;

constexpr Training kTrainings[] = {Training::kAdamW,   Training::kAdamL2,  Training::kLion,
                                   Training::kSgd,     Training::kAdagrad, Training::kLamb,
                                   Training::kNoDecay, Training::kOneCycle};

// Elements of a parameter in a run of AdamW without decay, all in fp64.
struct AdamRun {
  configs::OptimizerConfig config;
  Tensor value, m, v;
  int64_t update = 0;

  AdamRun(const configs::OptimizerConfig& optimizer, int64_t count)
      : config(optimizer),
        value(at::zeros({count}, torch::kDouble)),
        m(at::zeros_like(value)),
        v(at::zeros_like(value)) {}

  void step(const Tensor& gradient) {
    const auto [beta1, beta2] = config.betas;
    const auto n = static_cast<double>(++update);
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient.square();
    const Tensor root = (v / (1 - std::pow(beta2, n))).sqrt() + config.eps;
    value = value - config.lr * m / (1 - std::pow(beta1, n)) / root;
  }
};

// The same of Lamb, which decays.
struct LambRun : AdamRun {
  using AdamRun::AdamRun;

  void step(const Tensor& gradient) {
    const auto [beta1, beta2] = config.betas;
    const auto n = static_cast<double>(++update);
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient.square();
    const Tensor u = m / (v.sqrt() + config.eps) + config.weight_decay * value;
    const double rate = config.lr * std::sqrt(1 - std::pow(beta2, n)) / (1 - std::pow(beta1, n));
    value = value - rate * (value.norm() / u.norm()) * u;
  }
};

}  // namespace

TEST_CASE("the first gradients show a sum that lacks a rank or a micro-batch, or is off by one") {
  const Tensors whole = first_gradients({});
  CHECK(largest_gap(whole, whole) == 0);
  RowChecker checker;
  const double bound = kMargin * checker.noise({}).first_gradient;
  const auto expect_found = [&](const Tensors& wrong, const Tensors& right) {
    CHECK(largest_gap(wrong, right) > 10 * bound);
  };
  Row split = {.accumulation = 2, .ranks = 3};
  split.zero.stage = 2;
  CHECK(largest_gap(first_gradients(split), whole) <= bound);
  const Tensors rank = first_gradients({}, {.rank = 2, .world_size = 3});
  expect_found(plus(whole, rank, -1.0 / 3), whole);
  expect_found(plus(whole, rank, 1.0 / 3), whole);
  const Tensors micro_batch = first_gradients({}, {.accumulation = 2});
  expect_found(plus(whole, micro_batch, -1.0 / 2), whole);
  for (const auto& [name, value] : whole) {  // a shard that begins in the padding
    CAPTURE(name);
    Tensors shifted = whole;
    shifted[name] = at::cat({at::zeros({1}, value.options()), value.slice(0, 0, -1)});
    expect_found(shifted, whole);
    Tensors scaled = whole;
    scaled[name] = value * 1.01;
    expect_found(scaled, whole);
    Tensors lacking = whole;  // one element, the largest, counted twice
    const int64_t largest = value.abs().argmax().item<int64_t>();
    lacking[name] = value.clone();
    lacking[name][largest] *= 2;
    expect_found(lacking, whole);
  }
}

TEST_CASE("every training shows a missing all-reduce, and a wrong scale of one gradient") {
  RowChecker checker;
  for (const Training training : kTrainings) {
    const Row row = {.training = training};
    CAPTURE(name_of(row));
    const configs::OptimizerConfig optimizer = config_of(row).optimizer;
    const RowResult& right = checker.result(row);
    const double bound = kMargin * checker.noise(row).states.back();
    // Of two ranks one that never hears of the other's samples.
    const RowResult wrong = run_row(row, {.rank = 0, .world_size = 2});
    CHECK(largest_gap(wrong.states, right.states, optimizer) > 10 * bound);
    double beyond = 0;
    for (const auto& [name, value] : right.parameters) {
      const Tensor off = (wrong.parameters.at(name) - value).abs().to(torch::kDouble).flatten();
      beyond = std::max(beyond, (off / checker.reach(row).at(name)).max().item<double>());
    }
    CHECK(beyond > 10);
    for (const auto& [name, value] : right.states.front()) {
      CAPTURE(name);
      std::vector<Tensors> scaled = right.states;
      scaled.front()[name] = value * 1.01;
      CHECK(largest_gap(scaled, right.states, optimizer) > 2 * bound);
    }
    MESSAGE(name_of(row), ": first gradient ", checker.noise(row).first_gradient, ", states ",
            checker.noise(row).states.back(), ", of a lost rank ",
            largest_gap(wrong.states, right.states, optimizer));
  }
}

TEST_CASE("16-bit first gradients show a sum that lacks a rank or a micro-batch") {
  for (const configs::Precision precision :
       {configs::Precision::kBf16, configs::Precision::kFp16}) {
    Row split = {.precision = precision, .accumulation = 2, .ranks = 3};
    split.zero.stage = 2;
    const Tensors whole = first_gradients({.precision = precision});
    const double noise = rounding_noise(split);
    CHECK(largest_gap(first_gradients(split), whole) <= noise);
    const Row one = {.precision = precision};
    const Tensors rank = first_gradients(one, {.rank = 2, .world_size = 3});
    CHECK(largest_gap(plus(whole, rank, -1.0 / 3), whole) > 10 * noise);
    const Tensors micro_batch = first_gradients(one, {.accumulation = 2});
    CHECK(largest_gap(plus(whole, micro_batch, -1.0 / 2), whole) > 10 * noise);
  }
}

TEST_CASE("what rounding does to a run of Adam stays in reach, a missing addend does not") {
  torch::manual_seed(41);
  constexpr int64_t kCount = 4000, kUpdates = 20, kRanks = 3;
  const configs::OptimizerConfig config{.lr = 1e-3, .betas = {0.9, 0.95}};
  const Tensor sizes = at::pow(10, -9 * at::rand({kCount}, torch::kDouble));  // 1 to 1e-9
  AdamRun run(config, kCount), rounded(config, kCount), lacking(config, kCount);
  Reach reach(config);
  for (int64_t update = 0; update < kUpdates; ++update) {
    const Tensor ranks = at::randn({kRanks, kCount}, torch::kDouble) * sizes;
    const Tensor gradient = ranks.sum(0);
    const double noise = kNoise * gradient.abs().max().item<double>();
    run.step(gradient);
    rounded.step(gradient + noise * (2 * at::rand({kCount}, torch::kDouble) - 1));
    lacking.step(ranks[0] + ranks[1]);
    reach.add(run.value, {run.m, run.v}, config.lr, static_cast<double>(update + 1) * kNoise);
  }
  const Tensor distance = reach.distance();
  CHECK((rounded.value - run.value).abs().le(distance).all().item<bool>());
  // Elements above the noise are held tightly, those below it by what Adam can do.
  const Tensor large = sizes.gt(1e-2), small = sizes.lt(1e-8);
  CHECK(distance.masked_select(large).max().item<double>() < 0.05 * config.lr * kUpdates);
  CHECK(distance.max().item<double>() < 2.5 * config.lr * kUpdates);
  CHECK(distance.masked_select(small).min().item<double>() > config.lr * kUpdates);
  const Tensor found = (lacking.value - run.value).abs().gt(distance).masked_select(large);
  CHECK(found.to(torch::kDouble).mean().item<double>() > 0.9);
}

TEST_CASE("what rounding does to a run of Lamb stays in reach, the norms of a shard do not") {
  torch::manual_seed(43);
  constexpr int64_t kCount = 4000, kUpdates = 20;
  const configs::OptimizerConfig config{.kind = configs::OptimizerConfig::Kind::kLamb,
                                        .lr = 1e-2,
                                        .betas = {0.9, 0.95},
                                        .weight_decay = 0.1};
  const Tensor start = at::randn({kCount}, torch::kDouble) / 10;
  LambRun run(config, kCount), rounded(config, kCount);
  LambRun shard(config, kCount / 2);
  run.value = start.clone();
  rounded.value = start.clone();
  shard.value = start.slice(0, 0, kCount / 2).clone();
  Reach reach(config);
  for (int64_t update = 0; update < kUpdates; ++update) {
    const Tensor gradient = at::randn({kCount}, torch::kDouble);
    const double noise = kNoise * gradient.abs().max().item<double>();
    run.step(gradient);
    rounded.step(gradient + noise * (2 * at::rand({kCount}, torch::kDouble) - 1));
    shard.step(gradient.slice(0, 0, kCount / 2));
    reach.add(run.value, {run.m, run.v}, config.lr, static_cast<double>(update + 1) * kNoise);
  }
  const Tensor distance = reach.distance();
  CHECK((rounded.value - run.value).abs().le(distance).all().item<bool>());
  CHECK(distance.max().item<double>() < 0.1 * config.lr * kUpdates);
  const Tensor off = (shard.value - run.value.slice(0, 0, kCount / 2)).abs();
  const Tensor found = off.gt(distance.slice(0, 0, kCount / 2));
  CHECK(found.to(torch::kDouble).mean().item<double>() > 0.5);
}

}  // namespace zeroth::equivalence::reach_test
