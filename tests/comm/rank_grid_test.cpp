#include "comm/rank_grid.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::comm {

TEST_CASE("tensor is the innermost axis, pipe the outermost") {
  const RankGrid grid({.pipe = 2, .data = 3, .tensor = 2}, 12);
  CHECK((grid.position(0) == GridPosition{0, 0, 0}));
  CHECK((grid.position(1) == GridPosition{0, 0, 1}));
  CHECK((grid.position(2) == GridPosition{0, 1, 0}));
  CHECK((grid.position(6) == GridPosition{1, 0, 0}));
  CHECK((grid.tensor_peers(4) == std::vector<int>{4, 5}));
  CHECK((grid.data_peers(3) == std::vector<int>{1, 3, 5}));
  CHECK((grid.pipe_peers(3) == std::vector<int>{3, 9}));
}

TEST_CASE("rank and position are each other's inverse") {
  const RankGrid grid({.pipe = 3, .data = 2, .tensor = 4}, 24);
  for (int rank = 0; rank < 24; ++rank) CHECK(grid.rank(grid.position(rank)) == rank);
  CHECK_THROWS_AS(grid.position(24), InternalError);
}

TEST_CASE("a grid that does not fit the ranks names both numbers") {
  CHECK_THROWS_WITH_AS(RankGrid({.data = 3}, 4),
                       "a grid of pipe 1 x data 3 x tensor 1 has 3 ranks, but 4 were started",
                       Error);
  CHECK_THROWS_AS(RankGrid({.data = 0}, 0), Error);
}

}  // namespace zeroth::comm
