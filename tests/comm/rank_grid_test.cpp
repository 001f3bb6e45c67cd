#include "comm/rank_grid.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::comm {
namespace {

using Parts = std::vector<std::vector<int>>;

const RankGrid kCube(GridShape().with(Axis::kPipe, 2).with(Axis::kData, 2).with(Axis::kTensor, 2));

}  // namespace

TEST_CASE("ranks are numbered row by row, tensor innermost and pipe outermost") {
  CHECK(kCube.shape().ranks() == 8);
  const int rank = 6;  // 1 * 4 + 1 * 2 + 0
  CHECK(kCube.coordinate(rank, Axis::kPipe) == 1);
  CHECK(kCube.coordinate(rank, Axis::kData) == 1);
  CHECK(kCube.coordinate(rank, Axis::kTensor) == 0);
  CHECK(kCube.coordinate(rank, Axis::kContext) == 0);
  CHECK_THROWS_AS(kCube.coordinate(8, Axis::kData), InternalError);
}

TEST_CASE("ranks of a group differ on its axes alone") {
  CHECK(kCube.along({Axis::kTensor}).parts == Parts{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(kCube.along({Axis::kData}).parts == Parts{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(kCube.along({Axis::kPipe}).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(kCube.along({Axis::kData, Axis::kTensor}).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(kCube.along({Axis::kContext}).parts.size() == 8);
  CHECK(kCube.along({Axis::kTensor, Axis::kData}).name == "data x tensor");
  // DeepSpeed's topology (pipe 2, data 2, model 2): those of pipe 0 and data 1.
  CHECK(kCube.along({Axis::kTensor}).part_of(2) == std::vector<int>{2, 3});
}

TEST_CASE("ranks that hold the same differ on data, and on tensor within a run of copies") {
  const RankGrid grid(GridShape::data(2).with(Axis::kTensor, 4));
  CHECK(grid.sharing(1).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(grid.sharing(2).parts == Parts{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(grid.sharing(2).name == "data x 2 of tensor");
  CHECK(grid.sharing(4).parts == Parts{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(kCube.sharing(1).parts == Parts{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(kCube.sharing(2).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK_THROWS_AS(grid.sharing(3), InternalError);
}

TEST_CASE("near ranks are runs of those that hold the same, and others stand at their place") {
  const RankGrid data(GridShape::data(6));
  CHECK(data.sharing_near(1, 2).parts == Parts{{0, 1}, {2, 3}, {4, 5}});
  CHECK(data.sharing_across(1, 2).parts == Parts{{0, 2, 4}, {1, 3, 5}});
  const RankGrid both(GridShape::data(4).with(Axis::kTensor, 2));
  CHECK(both.sharing_near(1, 2).parts == Parts{{0, 2}, {4, 6}, {1, 3}, {5, 7}});
  CHECK(both.sharing_across(1, 2).parts == Parts{{0, 4}, {2, 6}, {1, 5}, {3, 7}});
  CHECK(both.sharing_near(2, 2).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(both.sharing_across(2, 2).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("sizes of axes multiply") {
  const GridShape shape = GridShape::data(3).with(Axis::kTensor, 4);
  CHECK(shape.ranks_along({Axis::kTensor}) == 4);
  CHECK(shape.ranks_along({Axis::kData, Axis::kTensor}) == 12);
  CHECK(shape.ranks_along({Axis::kPipe}) == 1);
  CHECK_THROWS_AS(shape.with(Axis::kData, 0), InternalError);
}

TEST_CASE("shapes are told without axes of one rank") {
  CHECK(kCube.shape().str() == "pipe 2 x data 2 x tensor 2");
  CHECK(GridShape::data(3).str() == "data 3");
  CHECK(GridShape().str() == "data 1");
}

}  // namespace zeroth::comm
