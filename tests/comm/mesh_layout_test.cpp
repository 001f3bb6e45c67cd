#include "comm/mesh_layout.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::comm::mesh_layout_test {
namespace {

using Parts = std::vector<std::vector<int>>;

const MeshLayout kCube(
    MeshShape().with(MeshDim::kPp, 2).with(MeshDim::kDp, 2).with(MeshDim::kTp, 2));

}  // namespace

TEST_CASE("ranks are numbered row by row, tensor innermost and pipe outermost") {
  CHECK(kCube.shape().ranks() == 8);
  const int rank = 6;  // 1 * 4 + 1 * 2 + 0
  CHECK(kCube.coordinate(rank, MeshDim::kPp) == 1);
  CHECK(kCube.coordinate(rank, MeshDim::kDp) == 1);
  CHECK(kCube.coordinate(rank, MeshDim::kTp) == 0);
  CHECK(kCube.coordinate(rank, MeshDim::kCp) == 0);
  CHECK_THROWS_AS(kCube.coordinate(8, MeshDim::kDp), InternalError);
}

TEST_CASE("ranks of a group differ on its axes alone") {
  CHECK(kCube.along({MeshDim::kTp}).parts == Parts{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(kCube.along({MeshDim::kDp}).parts == Parts{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(kCube.along({MeshDim::kPp}).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(kCube.along({MeshDim::kDp, MeshDim::kTp}).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(kCube.along({MeshDim::kCp}).parts.size() == 8);
  CHECK(kCube.along({MeshDim::kTp, MeshDim::kDp}).name == "data x tensor");
  // DeepSpeed's topology (pipe 2, data 2, model 2): those of pipe 0 and data 1.
  CHECK(kCube.along({MeshDim::kTp}).part_of(2) == std::vector<int>{2, 3});
}

TEST_CASE("ranks that hold the same differ on data, and on tensor within a run of copies") {
  const MeshLayout grid(MeshShape::data_parallel(2).with(MeshDim::kTp, 4));
  CHECK(grid.shard_group(1).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(grid.shard_group(2).parts == Parts{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(grid.shard_group(2).name == "data x 2 of tensor");
  CHECK(grid.shard_group(4).parts == Parts{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(kCube.shard_group(1).parts == Parts{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(kCube.shard_group(2).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK_THROWS_AS(grid.shard_group(3), InternalError);
}

TEST_CASE("near ranks are runs of those that hold the same, and others stand at their place") {
  const MeshLayout data(MeshShape::data_parallel(6));
  CHECK(data.secondary_shard_group(1, 2).parts == Parts{{0, 1}, {2, 3}, {4, 5}});
  CHECK(data.secondary_replica_group(1, 2).parts == Parts{{0, 2, 4}, {1, 3, 5}});
  const MeshLayout both(MeshShape::data_parallel(4).with(MeshDim::kTp, 2));
  CHECK(both.secondary_shard_group(1, 2).parts == Parts{{0, 2}, {4, 6}, {1, 3}, {5, 7}});
  CHECK(both.secondary_replica_group(1, 2).parts == Parts{{0, 4}, {2, 6}, {1, 5}, {3, 7}});
  CHECK(both.secondary_shard_group(2, 2).parts == Parts{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(both.secondary_replica_group(2, 2).parts == Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("sizes of axes multiply") {
  const MeshShape shape = MeshShape::data_parallel(3).with(MeshDim::kTp, 4);
  CHECK(shape.ranks_along({MeshDim::kTp}) == 4);
  CHECK(shape.ranks_along({MeshDim::kDp, MeshDim::kTp}) == 12);
  CHECK(shape.ranks_along({MeshDim::kPp}) == 1);
  CHECK_THROWS_AS(shape.with(MeshDim::kDp, 0), InternalError);
}

TEST_CASE("shapes are told without axes of one rank") {
  CHECK(kCube.shape().str() == "pipe 2 x data 2 x tensor 2");
  CHECK(MeshShape::data_parallel(3).str() == "data 3");
  CHECK(MeshShape().str() == "data 1");
}

}  // namespace zeroth::comm::mesh_layout_test
