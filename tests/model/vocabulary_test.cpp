#include "model/blocks/vocabulary.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::model {

TEST_CASE("ranks of a vocabulary have runs that lie behind each other") {
  for (const int64_t size : {1600, 701, 9}) {
    int64_t next = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Vocabulary part(size,
                            c10::make_intrusive<TensorRanks>(rank, 4, TensorRanks::Options{}));
      CHECK(part.begin == next);
      CHECK(part.own <= part.most);
      next += part.own;
    }
    CHECK(next == size);
  }
  const Vocabulary third(1600, c10::make_intrusive<TensorRanks>(2, 8, TensorRanks::Options{}));
  CHECK(third.begin == 400);
  CHECK(third.own == 200);
}

TEST_CASE("a token is a row of the one rank that has it") {
  const Vocabulary second(7, c10::make_intrusive<TensorRanks>(1, 2, TensorRanks::Options{}));
  const auto [rows, here] = second.rows_of(torch::tensor({0, 3, 4, 6}, torch::kLong));
  CHECK(at::equal(here, torch::tensor({false, false, true, true})));
  CHECK(at::equal(rows, torch::tensor({0, 0, 0, 2}, torch::kLong)));
  CHECK_THROWS_WITH_AS(second.rows_of(torch::tensor({0, 7}, torch::kLong)),
                       "token 7 is outside of the vocabulary of 7", Error);
  CHECK_THROWS_WITH_AS(second.rows_of(torch::tensor({0, -1}, torch::kLong)),
                       "token -1 is outside of the vocabulary of 7", Error);
  const Split split = second.split("weight", 5);
  CHECK(split.shape == std::vector<int64_t>{7, 5});
  CHECK(split.begin == std::vector<int64_t>{4, 0});
}

}  // namespace zeroth::model
