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

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("update_", testing::update_on_cpu);
}

}  // namespace

TEST_CASE("a kernel of a GPU, its lanes those of the host, gives the bits of the host's rule") {
  expect_bits_of_host(torch::kCPU, {0, 1, 4, 7, 1000, 4099});
}

TEST_CASE("without the GPU library a rule for a GPU is made of LibTorch's operators") {
  CHECK_FALSE(DeviceRule::runs_on(torch::kCUDA));
  CHECK_FALSE(DeviceRule::runs_on(torch::kCPU));
}

TEST_CASE("a rule for a GPU checks its range like any other") {
  const Tensor narrow = at::zeros({8}, torch::kBFloat16);
  std::vector<Tensor> states = {narrow, narrow};
  CHECK_THROWS_AS(DeviceRule({}).apply({narrow, narrow, states}, usual_step({}, 1)), InternalError);
  const DeviceRule rule({.bf16_states = true, .bf16_masters = true});
  CHECK_THROWS_AS(rule.apply({narrow, narrow, states, {}, -1}, usual_step({}, 1)), InternalError);
}

}  // namespace zeroth::optim
