#include "engine/verify/verify_batches_match.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {
namespace {

model::MicroBatch batch_of(int64_t sample, int64_t token) {
  model::MicroBatch batch;
  batch.samples = {sample};
  batch.tokens = torch::full({1, 3}, token, torch::kLong);
  batch.targets = torch::full({1, 3}, 5, torch::kLong);
  return batch;
}

}  // namespace

TEST_CASE("a fingerprint tells samples, tokens and their order apart") {
  CHECK(fingerprint(batch_of(1, 2)) == fingerprint(batch_of(1, 2)));
  CHECK(fingerprint(batch_of(1, 2)) != fingerprint(batch_of(1, 3)));
  CHECK(fingerprint(batch_of(1, 2)) != fingerprint(batch_of(2, 2)));
  model::MicroBatch ends = batch_of(1, 2), begins = batch_of(1, 2);
  ends.tokens[0][2] = 9;
  begins.tokens[0][0] = 9;
  CHECK(fingerprint(ends) != fingerprint(begins));
}

TEST_CASE("ranks that share layers and draw different samples are named, on all ranks") {
  const auto grid = comm::MeshShape().with(comm::MeshDim::kDp, 2).with(comm::MeshDim::kTp, 2);
  testing::run_ranks(
      4,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        const int64_t own = mesh->coordinate(comm::MeshDim::kDp);
        CHECK_NOTHROW(verify_batches_match(own, 1, *mesh));
        CHECK_THROWS_WITH_AS(
            verify_batches_match(mesh->rank() == 3 ? 0xbad : 0x600d, 7, *mesh),
            "ranks 2 and 3 share every layer (tensor_parallel.autotp_size 2) but fetched "
            "different samples for step 7: hashes 600d and bad",
            Error);
      },
      {.grid = grid});
}

}  // namespace zeroth::engine
