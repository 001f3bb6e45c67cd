#include "model/blocks/sequence_tables.h"

#include <doctest/doctest.h>

#include <limits>

namespace zeroth::model::sequence_tables_test {

using torch::Tensor;

TEST_CASE("a window mask follows length and dtype") {
  WindowMask mask(2);
  const Tensor like = torch::zeros({});
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(torch::equal(
      mask.get(3, like),
      torch::tensor({{0.0, -inf, -inf}, {0.0, 0.0, -inf}, {-inf, 0.0, 0.0}}, torch::kFloat32)));
  CHECK(mask.get(5, like).size(0) == 5);
  const Tensor first = torch::tensor({{0, 0, 2}, {0, 1, 1}}, torch::kLong);
  CHECK(torch::equal(mask.get(3, like, first)[0].isinf().logical_not(),
                     torch::tensor({{1, 0, 0}, {1, 1, 0}, {0, 0, 1}}, torch::kBool)));
  CHECK(torch::equal(mask.get(3, like, first)[1].isinf().logical_not(),
                     torch::tensor({{1, 0, 0}, {0, 1, 0}, {0, 1, 1}}, torch::kBool)));
  CHECK(mask.get(3, like).dim() == 2);
  CHECK((mask.get(5, like.to(torch::kBFloat16)).scalar_type() == torch::kBFloat16));
}

TEST_CASE("a token sees its chunk of its sample, and first keys are copied to a device once") {
  MicroBatch batch;
  batch.tokens = torch::zeros({1, 7}, torch::kLong);
  ChunkStarts chunks;
  CHECK(torch::equal(chunks.get(batch, 3), torch::tensor({{0, 0, 0, 3, 3, 3, 6}}, torch::kLong)));
  batch.first_keys = torch::tensor({{0, 0, 2, 2, 2, 2, 2}}, torch::kLong);
  const Tensor packed = torch::tensor({{0, 0, 2, 2, 2, 5, 5}}, torch::kLong);
  CHECK(torch::equal(chunks.get(batch, 3), packed));
  CHECK(chunks.get(batch, 3).is_same(chunks.get(batch, 3)));
  DeviceFirstKeys keys;
  CHECK(keys.get(batch.first_keys, torch::kCPU).is_same(batch.first_keys));
  CHECK_FALSE(keys.get({}, torch::kCPU).defined());
}

}  // namespace zeroth::model::sequence_tables_test
