#include "zero/unit_buffers.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/chain.h"

namespace zeroth::zero::unit_buffers_test {

TEST_CASE("a block's parameters are views of its units' buffers, released ones without memory") {
  const model::Blocks blocks = testing::make_chain();
  UnitPlan plan = plan_units(blocks, 2);
  plan.units[1].gather_policy = GatherPolicy::kBeforeUse;
  UnitBuffers buffers(plan, torch::kFloat, torch::kCPU);
  const torch::NoGradGuard no_grad;
  const torch::Tensor kept = plan.units[0].params[0], released = plan.units[1].params[0];
  buffers.whole(0).fill_(3);
  CHECK(kept.eq(3).all().item<bool>());
  for (const size_t unit : {0, 2, 3, 4}) {
    CHECK(buffers.whole(unit).data_ptr() != nullptr);
    CHECK(buffers.whole(unit).nbytes() == 4 * static_cast<size_t>(plan.units[unit].layout.numel()));
  }
  CHECK(released.data_ptr() == nullptr);
  CHECK(buffers.live_elements() == 0);

  const int64_t numel = plan.units[1].layout.numel();
  buffers.allocate(1);
  buffers.whole(1).fill_(5);
  CHECK(released.eq(5).all().item<bool>());
  CHECK(buffers.live_elements() == numel);
  const int64_t pooled = buffers.pooled_bytes();
  CHECK(pooled >= 4 * numel);
  buffers.release(1);
  CHECK(released.data_ptr() == nullptr);

  const torch::Tensor others = torch::full({numel}, 7.0F);
  buffers.alias_memory(1, others.data_ptr());
  CHECK(released.eq(7).all().item<bool>());
  buffers.release(1);
  CHECK(others.eq(7).all().item<bool>());
  buffers.allocate(1);
  CHECK(buffers.whole(1).data_ptr() != others.data_ptr());  // it did not reach the pool
  CHECK(buffers.pooled_bytes() == pooled);
  CHECK(buffers.peak_live_elements() == numel);
}

}  // namespace zeroth::zero::unit_buffers_test
