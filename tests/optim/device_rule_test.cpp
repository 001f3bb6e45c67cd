// The rule for a GPU on the CPU: what a thread of the kernel does, with the plain lanes of the
// host.
#include "optim/device_rule.h"

#include <doctest/doctest.h>
#include <torch/library.h>

#include "base/error.h"
#include "tests/optim/rule_cases.h"
#include "tests/support/update_on_cpu.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

int calls = 0;

void counted_update(const Tensor& master, const Tensor& grad, at::TensorList states,
                    const std::optional<Tensor>& copy, at::IntArrayRef step) {
  ++calls;
  testing::update_on_cpu(master, grad, states, copy, step);
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("update_", counted_update);
}

}  // namespace

TEST_CASE("a kernel of a GPU, its lanes those of the host, gives the bits of the host's rule") {
  expect_bits_match_cpu(torch::kCPU, {0, 1, 4, 7, 1000, 4099});
}

TEST_CASE("stretches that decay and that do not have the bits of each by itself, in any number") {
  for (const OptimizerConfig& config : cpu_rules()) {
    const RuleCase what{config, torch::kFloat32, torch::kBFloat16};
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
  const RuleCase what{{}, torch::kFloat32, {}};
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
  const RuleCase what{{}, torch::kFloat32, {}};
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

}  // namespace zeroth::optim
