// The rule for a GPU runs on the CPU here: what a thread of the kernel does, with the plain lanes
// of the host.
#include "optim/kernel_rules.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>
#include <torch/library.h>

#include "base/error.h"
#include "tests/optim/cpu_arrays.h"
#include "tests/optim/flat_state.h"
#include "tests/optim/rule_cases.h"
#include "tests/support/update_on_cpu.h"

namespace zeroth::optim::kernel_rules_test {
namespace {

using torch::Tensor;

int calls = 0;

void counted_update(const Tensor& master, const Tensor& grad, at::TensorList states,
                    const std::optional<Tensor>& copy, at::IntArrayRef step,
                    const std::optional<Tensor>& tables) {
  ++calls;
  testing::update_on_cpu(master, grad, states, copy, step, tables);
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("update_", counted_update);
}

}  // namespace

TEST_CASE("the rule on host memory gives the bits of LibTorch's kernels, its copy too") {
  constexpr int64_t kCount = 64 * 1000;
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      FlatState tensors(config, initial(kCount), kRuleMakers[0]);
      FlatState host(config, initial(kCount), kRuleMakers[1]);
      const torch::Tensor copies[] = {at::zeros({kCount}, torch::kBFloat16),
                                      at::zeros({kCount}, torch::kBFloat16)};
      for (int64_t update = 1; update <= 3; ++update) {
        const torch::Tensor grad = gradient(kCount, update).to(dtype);
        tensors.rule->apply({tensors.master, grad.clone(), tensors.states, copies[0]},
                            tensors.step(update, 0.37));
        host.rule->apply({host.master, grad, host.states, copies[1]}, host.step(update, 0.37));
      }
      CAPTURE(static_cast<int>(config.kind));
      // LibTorch's loops for other processors fuse no products.
      if (!libtorch_fuses_products()) {
        CHECK(host.master.allclose(tensors.master, /*rtol=*/1e-5, /*atol=*/1e-6));
        continue;
      }
      CHECK(host.master.equal(tensors.master));
      CHECK(copies[1].equal(copies[0]));
      for (size_t i = 0; i < host.states.size(); ++i)
        CHECK(host.states[i].equal(tensors.states[i]));
    }
  }
}

TEST_CASE("a rule on host memory knows its states, and how they start, from its formula") {
  for (const OptimizerConfig& config : cpu_rules()) {
    const CpuRule host(config);
    const auto tensors = make_tensor_rule(config);
    CHECK(std::ranges::equal(host.state_names(), tensors->state_names()));
    CHECK(host.initial_state() == tensors->initial_state());
  }
  CHECK(CpuRule({.kind = Kind::kAdagrad, .initial_accumulator_value = 0.5}).initial_state() == 0.5);
}

TEST_CASE("a rule on host memory leaves its gradient as it is") {
  FlatState state({}, initial(100), kRuleMakers[1]);
  const torch::Tensor grad = gradient(100, 1);
  state.apply(grad, 1, 0.3);
  CHECK(grad.equal(gradient(100, 1)));
}

TEST_CASE("a rule says what rests in bf16, and rounds it by the numbers of the elements") {
  const OptimizerConfig config{.bf16_states = true, .bf16_masters = true};
  const CpuRule rule(config);
  CHECK((CpuRule({}).master_dtype() == torch::kFloat));
  CHECK((CpuRule({}).state_dtype() == torch::kFloat));
  CHECK((rule.master_dtype() == torch::kBFloat16));
  CHECK((rule.state_dtype() == torch::kBFloat16));
  CHECK((CpuRule({.bf16_masters = true}).state_dtype() == torch::kFloat));
  const auto updated = [&](const std::vector<int64_t>& bounds, uint64_t seed) {
    const torch::Tensor all = initial(1000).to(torch::kBFloat16);
    const std::vector<torch::Tensor> states = {at::zeros_like(all), at::zeros_like(all)};
    UpdateStep step = default_step(config, 1);
    step.rounding_seed = seed;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const auto part = [&](const torch::Tensor& x) {
        return x.slice(0, bounds[i], bounds[i + 1]);
      };
      std::vector<torch::Tensor> of_part = {part(states[0]), part(states[1])};
      rule.apply({part(all), part(gradient(1000, 1)), of_part, {}, bounds[i]}, step);
    }
    return at::stack({all, states[0], states[1]});
  };
  const torch::Tensor whole = updated({0, 1000}, 1);
  CHECK(updated({0, 300, 301, 1000}, 1).equal(whole));
  CHECK_FALSE(updated({0, 1000}, 2).equal(whole));
  CHECK(updated({0, 1000}, 2).allclose(whole, /*rtol=*/0x1p-7, /*atol=*/0));
}

TEST_CASE("what would lose a bf16 range's bits is refused") {
  const CpuRule rule({.bf16_states = true, .bf16_masters = true});
  const torch::Tensor narrow = at::zeros({8}, torch::kBFloat16), wide = at::zeros({8});
  std::vector<torch::Tensor> states = {narrow, narrow}, wide_states = {wide, wide};
  const auto step = default_step({}, 1);
  CHECK_NOTHROW(rule.apply({narrow, narrow, states}, step));
  CHECK_THROWS_AS(rule.apply({wide, narrow, states}, step), InternalError);
  CHECK_THROWS_AS(rule.apply({narrow, narrow, wide_states}, step), InternalError);
  CHECK_THROWS_AS(rule.apply({narrow, narrow, states, narrow}, step), InternalError);
  CHECK_THROWS_AS(CpuRule({}).apply({narrow, narrow, wide_states}, step), InternalError);
  CHECK_THROWS_AS(make_update_rule({.bf16_masters = true}, torch::kCUDA), Error);
}

TEST_CASE("a rule on host memory refuses a range that rests elsewhere") {
  const torch::Tensor elsewhere = at::zeros({8}, torch::Device(torch::kMeta));
  std::vector<torch::Tensor> states = {elsewhere, elsewhere};
  CHECK_THROWS_AS(CpuRule({}).apply({elsewhere, elsewhere, states}, default_step({}, 1)),
                  InternalError);
}

TEST_CASE("a kernel of a GPU, its lanes those of the host, gives the bits of the host's rule") {
  expect_bits_match_cpu(torch::kCPU, {0, 1, 4, 7, 1000, 4099});
}

TEST_CASE(
    "parameter groups that decay and that do not have the bits of each by itself, in any number") {
  for (const OptimizerConfig& config : cpu_rules()) {
    const RuleCase what{config, torch::kFloat, torch::kBFloat16};
    // Some end within the four elements of a thread; the numbers wrap around at element 30.
    for (const int64_t length : {4, 24, 37, 1000}) {
      constexpr int64_t kCount = 2003;
      std::vector<ParamGroupRange> param_groups;
      for (int64_t begin = 0; begin < kCount; begin += length) {
        param_groups.push_back({begin, std::min(begin + length, kCount), begin / length % 3 != 0});
      }
      RuleArrays one_by_one(what, 0, kCount, torch::kCPU), at_once(what, 0, kCount, torch::kCPU);
      const Tensor grad = at::randn({kCount});
      one_by_one.apply(CpuRule(config), grad, 1, param_groups);
      at_once.apply(DeviceRule(config), grad, 1, param_groups);
      const auto expected = one_by_one.all(), got = at_once.all();
      for (size_t i = 0; i < expected.size(); ++i) CHECK(torch::equal(got[i], expected[i]));
    }
  }
}

TEST_CASE("one call takes sixteen stretches, and a range without any") {
  const RuleCase what{{}, torch::kFloat, {}};
  constexpr int64_t kCount = 17 * 64;
  RuleArrays arrays(what, 0, kCount, torch::kCPU);
  const Tensor grad = at::ones({kCount});
  const auto calls_for = [&](int64_t count) {
    std::vector<ParamGroupRange> param_groups;
    for (int64_t i = 0; i < count; ++i) {
      param_groups.push_back({i * 64, i + 1 < count ? (i + 1) * 64 : kCount, i % 2 == 0});
    }
    calls = 0;
    DeviceRule(what.config)
        .apply_param_groups({arrays.master, grad, arrays.states, {}}, default_step(what.config, 1),
                            param_groups);
    return calls;
  };
  CHECK(calls_for(1) == 1);
  CHECK(calls_for(16) == 1);
  CHECK(calls_for(17) == 2);
}

TEST_CASE("stretches that do not cover their range are a broken invariant") {
  const RuleCase what{{}, torch::kFloat, {}};
  RuleArrays arrays(what, 0, 64, torch::kCPU);
  const std::vector<ParamGroupRange> gap = {{0, 16}, {32, 64}}, early = {{0, 48}};
  CHECK_THROWS_AS(arrays.apply(DeviceRule({}), at::ones({64}), 1, gap), InternalError);
  CHECK_THROWS_AS(arrays.apply(DeviceRule({}), at::ones({64}), 1, early), InternalError);
}

TEST_CASE("without the GPU library a rule for a GPU is made of LibTorch's operators") {
  CHECK_FALSE(DeviceRule::runs_on(torch::kCUDA));
  CHECK_FALSE(DeviceRule::runs_on(torch::kCPU));
}

TEST_CASE("a rule for a GPU checks its range like any other") {
  const Tensor narrow = at::zeros({8}, torch::kBFloat16);
  std::vector<Tensor> states = {narrow, narrow};
  CHECK_THROWS_AS(DeviceRule({}).apply({narrow, narrow, states}, default_step({}, 1)),
                  InternalError);
  const DeviceRule rule({.bf16_states = true, .bf16_masters = true});
  CHECK_THROWS_AS(rule.apply({narrow, narrow, states, {}, -1}, default_step({}, 1)), InternalError);
}

}  // namespace zeroth::optim::kernel_rules_test
