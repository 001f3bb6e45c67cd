#include "model/micro_batch.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::model::micro_batch_test {
namespace {

MicroBatch batch_of(int64_t rows, int64_t seq, std::vector<int64_t> seeds) {
  MicroBatch batch;
  batch.tokens = torch::zeros({rows, seq}, torch::kInt64);
  batch.sample_seeds = std::move(seeds);
  return batch;
}

}  // namespace

TEST_CASE("each row is a sample, unless first keys say where several begin") {
  MicroBatch batch = batch_of(2, 4, {11, 12});
  auto samples = seeded_samples(batch);
  REQUIRE(samples.size() == 2);
  CHECK(samples[1].begin == 4);
  CHECK(samples[1].end == 8);
  CHECK(samples[1].seed == 12);
  batch.first_keys = torch::tensor({0, 1, 1, 3, 0, 0, 0, 0}, torch::kInt64).view({2, 4});
  batch.sample_seeds = {11, 12, 13, 14};
  samples = seeded_samples(batch);
  REQUIRE(samples.size() == 4);
  CHECK(samples[1].begin == 1);
  CHECK(samples[1].end == 3);
  CHECK(samples[2].end == 4);
  CHECK(samples[3].begin == 4);
  CHECK(samples[3].seed == 14);
}

TEST_CASE("another number of seeds than of samples is an error") {
  CHECK_THROWS_AS(seeded_samples(batch_of(2, 4, {1})), Error);
  CHECK_THROWS_AS(seeded_samples(batch_of(2, 4, {})), Error);
  CHECK_THROWS_AS(seeded_samples(batch_of(2, 4, {1, 2, 3})), Error);
}

}  // namespace zeroth::model::micro_batch_test
