#include "model/blocks/vocab_shard.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::model {

TEST_CASE("ranks of a vocabulary have runs that lie behind each other") {
  for (const int64_t size : {1600, 701, 9}) {
    int64_t next = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const VocabShard part(
          size, std::make_shared<TensorParallel>(rank, 4, TensorParallel::CommOptions{}));
      CHECK(part.begin == next);
      CHECK(part.local_size <= part.max_local_size);
      next += part.local_size;
    }
    CHECK(next == size);
  }
  const VocabShard third(1600,
                         std::make_shared<TensorParallel>(2, 8, TensorParallel::CommOptions{}));
  CHECK(third.begin == 400);
  CHECK(third.local_size == 200);
}

TEST_CASE("a token is a row of the one rank that has it") {
  const VocabShard second(7, std::make_shared<TensorParallel>(1, 2, TensorParallel::CommOptions{}));
  const auto [rows, is_local] = second.local_rows(torch::tensor({0, 3, 4, 6}, torch::kLong));
  CHECK(at::equal(is_local, torch::tensor({false, false, true, true})));
  CHECK(at::equal(rows, torch::tensor({0, 0, 0, 2}, torch::kLong)));
  CHECK_THROWS_WITH_AS(second.local_rows(torch::tensor({0, 7}, torch::kLong)),
                       "token 7 is outside of the vocabulary of 7", Error);
  CHECK_THROWS_WITH_AS(second.local_rows(torch::tensor({0, -1}, torch::kLong)),
                       "token -1 is outside of the vocabulary of 7", Error);
  const Split split = second.split("weight", 5);
  CHECK(split.shape == std::vector<int64_t>{7, 5});
  CHECK(split.begin == std::vector<int64_t>{4, 0});
}

}  // namespace zeroth::model
