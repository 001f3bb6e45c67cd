#include "engine/step_sums.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/ranks.h"

namespace zeroth::engine {

TEST_CASE("what the ranks tell each other at a step's end adds up, field by field") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const int64_t one = mesh->rank() + 1;
    const StepSums own = {
        .ends = one == 2,
        .unused = one == 1,
        .counts = {
            .tokens = int64_t{1} << 50, .trained_tokens = 10 * one, .trained_micro_batches = one}};
    const auto half = torch::full({}, 0.5, torch::kDouble), third = torch::full({}, one / 4.0);
    const torch::Tensor told = to_tensor(half, third.to(torch::kFloat), own);
    mesh->data().all_reduce(told).wait();
    const StepSums sums = from_tensor(told);
    CHECK(sums.loss == 1);
    CHECK(sums.squares == 0.75);
    CHECK(sums.ends == 1);
    CHECK(sums.unused == 1);
    CHECK(sums.counts.tokens == int64_t{1} << 51);
    CHECK(sums.counts.trained_tokens == 30);
    CHECK(sums.counts.trained_micro_batches == 3);
  });
}

}  // namespace zeroth::engine
