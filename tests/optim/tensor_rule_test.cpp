#include "optim/tensor_rule.h"

#include <doctest/doctest.h>

#include "optim/cpu/cpu_rule.h"
#include "tests/optim/flat_state.h"

namespace zeroth::optim {

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

}  // namespace zeroth::optim
