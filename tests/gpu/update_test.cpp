// The rule for a GPU beside the rule for the host, whose numbers it has to give.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>

#include "tests/optim/rule_cases.h"

namespace zeroth::optim::update_test {

using torch::Tensor;

TEST_CASE("updates on the GPU give the bits of updates on the host") {
  REQUIRE(DeviceRule::runs_on(torch::kCUDA));
  // Not so many under a tool that makes kernels a hundred times slower.
  const bool few = std::getenv("ZEROTH_TEST_FEW") != nullptr;
  expect_bits_match_cpu(torch::kCUDA, {0, 1, 7, 1000, few ? 1003 : 100'003});
}

TEST_CASE("stretches that do not decay have the bits of each by itself on the GPU") {
  for (const OptimizerConfig& config : cpu_rules()) {
    const RuleCase what{config, torch::kBFloat16, torch::kBFloat16};
    std::vector<ParamGroupRange> param_groups;
    for (int64_t begin = 0; begin < 20'000; begin += 500) {
      param_groups.push_back({begin, begin + 500, begin / 500 % 2 == 0});
    }
    RuleArrays host(what, 0, 20'000, torch::kCPU), gpu(what, 0, 20'000, torch::kCUDA);
    const Tensor grad = torch::randn({20'000}).to(torch::kBFloat16);
    host.apply(CpuRule(config), grad, 1, param_groups);
    gpu.apply(DeviceRule(config), grad.to(torch::kCUDA), 1, param_groups);
    const auto expected = host.all(), got = gpu.all();
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(torch::equal(got[i].to(torch::kCPU), expected[i]));
    }
  }
}

TEST_CASE("what is not finite reaches master, moments and copy on the GPU as on the host") {
  const RuleCase what{{.kind = Kind::kAdamW}, torch::kFloat32, torch::kBFloat16};
  RuleArrays host(what, 0, 64, torch::kCPU), gpu(what, 0, 64, torch::kCUDA);
  Tensor grad = torch::randn({64});
  grad[3] = INFINITY;
  grad[20] = -INFINITY;
  grad[40] = NAN;
  host.apply(CpuRule(what.config), grad, 1);
  gpu.apply(DeviceRule(what.config), grad.to(torch::kCUDA), 1);
  const auto expected = host.all(), got = gpu.all();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(torch::allclose(got[i].to(torch::kCPU), expected[i], 0, 0, /*equal_nan=*/true));
  }
}

TEST_CASE("an update on the GPU runs at more than half the speed of a copy") {
  constexpr int64_t kCount = 64'000'000;
  const RuleCase what{{.kind = Kind::kAdamW}, torch::kBFloat16, torch::kBFloat16};
  const DeviceRule rule(what.config);
  RuleArrays arrays(what, 0, kCount, torch::kCUDA);
  const Tensor grad = torch::randn({kCount}, torch::kCUDA).to(torch::kBFloat16);
  const Tensor wide = torch::empty({kCount}, torch::kCUDA), other = torch::empty_like(wide);
  const auto seconds = [&](const auto& work) {
    work();
    torch::cuda::synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) work();
    torch::cuda::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
  };
  const double update = seconds([&] { arrays.apply(rule, grad, 1); });
  const double copy = seconds([&] { other.copy_(wide); });
  const double of_update = 28e-9 * kCount / update, of_copy = 8e-9 * kCount / copy;
  MESSAGE("AdamW: ", of_update, " GB/s, a copy: ", of_copy);
  CHECK(of_update > 0.5 * of_copy);
}

}  // namespace zeroth::optim::update_test
