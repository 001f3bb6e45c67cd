// Meshes whose ranks stand on several axes.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/comm_log.h"
#include "comm/cpu_collectives.h"
#include "comm/device_mesh.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::device_mesh_groups_test {
namespace {

using testing::RankOptions;
using testing::run_ranks;
using testing::Transport;

const MeshShape kGrid = MeshShape::data_parallel(2).with(MeshDim::kTp, 3);

float sum_over(Group& group, int own) {
  const torch::Tensor sum = torch::full({1}, own, torch::kFloat);
  group.all_reduce(sum, ReduceOp::kSum, "numbers of ranks").wait();
  return sum.item<float>();
}

}  // namespace

TEST_CASE("groups join the ranks that differ on their axes alone") {
  for (const Transport transport : {Transport::kSharedMemory, Transport::kGloo}) {
    run_ranks(6,
              [](std::shared_ptr<DeviceMesh> mesh) {
                const int rank = mesh->rank();
                const int data = mesh->coordinate(MeshDim::kDp);
                const int tensor = mesh->coordinate(MeshDim::kTp);
                CHECK(rank == 3 * data + tensor);
                Group& tensors = mesh->group({MeshDim::kTp});
                CHECK(tensors.rank() == tensor);
                CHECK(tensors.size() == 3);
                CHECK(sum_over(tensors, rank) == 3 * (3 * data + 1));
                CHECK(mesh->dp_group().rank() == data);
                CHECK(sum_over(mesh->dp_group(), rank) == 2 * tensor + 3);
                CHECK(sum_over(mesh->world(), rank) == 15);
                CHECK(&mesh->group({MeshDim::kDp, MeshDim::kTp}) == &mesh->world());
                CHECK(&mesh->group({MeshDim::kTp}) == &tensors);
                CHECK(mesh->group({MeshDim::kPp}).size() == 1);
                CHECK(mesh->times().collectives >= 3);
              },
              {.transport = transport, .grid = kGrid});
  }
}

TEST_CASE("groups join the ranks that hold the same") {
  RankOptions options;
  options.grid = MeshShape::data_parallel(2).with(MeshDim::kTp, 4);
  run_ranks(
      8,
      [](std::shared_ptr<DeviceMesh> mesh) {
        const int tensor = mesh->coordinate(MeshDim::kTp);
        CHECK(&mesh->shard_group(1) == &mesh->dp_group());
        CHECK(&mesh->shard_group(4) == &mesh->world());
        Group& pairs = mesh->shard_group(2);
        CHECK(&mesh->shard_group(2) == &pairs);
        CHECK(pairs.size() == 4);
        CHECK(pairs.rank() == 2 * mesh->coordinate(MeshDim::kDp) + tensor % 2);
        CHECK(sum_over(pairs, mesh->rank()) == (tensor < 2 ? 10 : 18));
        CHECK(mesh->times().collectives >= 1);
        mesh->log_collectives({.enabled = true});
        sum_over(mesh->shard_group(2), 1);
        CHECK(mesh->comm_log()->totals().count({"all_reduce", 4, 4}) == 1);
      },
      options);
}

TEST_CASE("without a word all ranks are on axis data") {
  run_ranks(3, [](std::shared_ptr<DeviceMesh> mesh) {
    CHECK(mesh->coordinate(MeshDim::kDp) == mesh->rank());
    CHECK(&mesh->dp_group() == &mesh->world());
    CHECK(mesh->group({MeshDim::kTp}).size() == 1);
  });
}

TEST_CASE("a shape of another number of ranks is refused with both") {
  run_ranks(2, [](std::shared_ptr<DeviceMesh> mesh) {
    CHECK(message_of<Error>([&] { mesh->set_shape(kGrid); }) ==
          "a mesh of data 2 x tensor 3 has 6 ranks, the world 2");
  });
}

// Rows and columns of a grid wait in opposite orders for more than any ring holds: each rank is
// needed by one group while it waits for the other.
TEST_CASE("a rank that waits in one group moves the bytes of its others") {
  RankOptions options{.timeout = std::chrono::seconds(20)};
  options.grid = MeshShape::data_parallel(2).with(MeshDim::kTp, 2);
  constexpr int64_t kNumel = 12 << 20;  // 48 MiB
  run_ranks(
      4,
      [](std::shared_ptr<DeviceMesh> mesh) {
        const torch::Tensor rows = torch::full({kNumel}, 1 + mesh->rank(), torch::kFloat);
        const torch::Tensor columns = rows.clone();
        CollectiveHandle row = mesh->group({MeshDim::kTp}).all_reduce(rows, ReduceOp::kSum, "rows");
        CollectiveHandle column = mesh->dp_group().all_reduce(columns, ReduceOp::kSum, "columns");
        const bool row_first = mesh->rank() == 0 || mesh->rank() == 3;
        (row_first ? row : column).wait();
        (row_first ? column : row).wait();
        CHECK(rows.eq(mesh->rank() < 2 ? 3 : 7).all().item<bool>());
        CHECK(columns.eq(mesh->rank() % 2 == 0 ? 4 : 6).all().item<bool>());
      },
      options);
}

TEST_CASE("a rank that is lost is named with its axis, by its number in the world") {
  RankOptions options{.timeout = std::chrono::seconds(20)};
  options.grid = kGrid;
  std::vector<std::string> messages(6);
  run_ranks(
      6,
      [&](std::shared_ptr<DeviceMesh> mesh) {
        Group& tensors = mesh->group({MeshDim::kTp});
        sum_over(tensors, 0);
        if (mesh->rank() == 4) return;  // leaves
        if (mesh->coordinate(MeshDim::kDp) == 1) {
          messages[static_cast<size_t>(mesh->rank())] =
              message_of<Error>([&] { sum_over(tensors, 0); });
        } else {
          sum_over(tensors, 0);
        }
      },
      options);
  for (const int rank : {3, 5}) {
    const std::string& message = messages[static_cast<size_t>(rank)];
    CAPTURE(message);
    const std::string begin = "rank " + std::to_string(rank) +
                              ": all-reduce of numbers of ranks (1 elements) over 'tensor' (ranks "
                              "3, 4, 5) failed: rank 4 is gone; ";
    CHECK(message.find(begin) == 0);
    CHECK(message.find(" arrived; missing: ") != std::string::npos);
    CHECK(message.find("rank 4 (process ") != std::string::npos);
    CHECK(message.find("has left") != std::string::npos);
  }
}

TEST_CASE("collectives of parts are logged with the size of their group") {
  RankOptions options;
  options.grid = kGrid;
  run_ranks(
      6,
      [](std::shared_ptr<DeviceMesh> mesh) {
        mesh->log_collectives({.enabled = true});
        sum_over(mesh->group({MeshDim::kTp}), 1);
        sum_over(mesh->world(), 1);
        CHECK(mesh->comm_log()->totals().count({"all_reduce", 4, 3}) == 1);
        CHECK(mesh->comm_log()->totals().count({"all_reduce", 4, 6}) == 1);
      },
      options);
}

}  // namespace zeroth::comm::device_mesh_groups_test
