#include "engine/tensor_ranks.h"

#include <doctest/doctest.h>

#include "tests/support/ranks.h"

namespace zeroth::engine {

TEST_CASE("neighbours share layers; one rank alone shares none") {
  configs::Config config;
  config.tensor_parallel.size = 2;
  const auto grid = comm::GridShape().with(comm::Axis::kData, 2).with(comm::Axis::kTensor, 2);
  testing::run_ranks(4,
                     [&](std::shared_ptr<comm::Mesh> mesh) {
                       const auto ranks = tensor_ranks(*mesh, config);
                       CHECK(ranks->size() == 2);
                       CHECK(ranks->rank() == mesh->rank() % 2);
                       const torch::Tensor sum = torch::full({1}, mesh->rank());
                       ranks->all_reduce(sum, comm::Reduce::kSum, "numbers");
                       CHECK(sum.item<int64_t>() == (mesh->rank() < 2 ? 1 : 5));
                     },
                     {.grid = grid});
  testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
    CHECK_FALSE(tensor_ranks(*mesh, configs::Config()));
  });
  CHECK(rehearsed_tensor_ranks(config)->size() == 2);
  CHECK_FALSE(rehearsed_tensor_ranks(configs::Config()));
}

}  // namespace zeroth::engine
