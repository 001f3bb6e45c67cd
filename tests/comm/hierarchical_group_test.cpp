// Ranks that are told to be on several machines, beside the same ranks on one.
#include "comm/groups/hierarchical_group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sin.h>
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::hierarchical_group_test {
namespace {

using testing::RankOptions;
using testing::run_ranks;
using Names = std::vector<std::string>;

// Two by two, two by three, three by one, three by two, in turn, unequally many.
const std::vector<Names> kMachines = {{"a", "a", "b", "b"}, {"a", "a", "a", "b", "b", "b"},
                                      {"a", "b", "c"},      {"a", "a", "b", "b", "c", "c"},
                                      {"a", "b", "a", "b"}, {"a", "a", "a", "b"}};

void on_machines(const Names& nodes, const std::function<void(std::shared_ptr<DeviceMesh>)>& fn,
                 std::optional<MeshShape> grid = {}) {
  RankOptions options{.timeout = std::chrono::seconds(30)};
  options.nodes = nodes;
  options.grid = grid;
  run_ranks(static_cast<int>(nodes.size()), fn, options);
}

// Whole numbers, whose sums are exact, other ones on each rank.
torch::Tensor numbers(int64_t elements, int rank, torch::Dtype dtype) {
  return (torch::arange(elements, torch::kInt) * 7 + 3 * rank).remainder_(11).to(dtype);
}

void check_sums(Group& group, torch::Dtype dtype, int64_t n) {
  torch::Tensor sum = torch::zeros({n}, dtype), max = numbers(n, 0, dtype);
  for (int rank = 0; rank < group.size(); ++rank) {
    sum += numbers(n, rank, dtype);
    max = at::maximum(max, numbers(n, rank, dtype));
  }
  const torch::Tensor added = numbers(n, group.rank(), dtype), highest = added.clone();
  group.all_reduce(added).wait();
  CHECK(at::equal(added, sum));
  group.all_reduce(highest, ReduceOp::kMax).wait();
  CHECK(at::equal(highest, max));

  const int64_t all = n * group.size();
  torch::Tensor rows = torch::zeros({all}, dtype);
  for (int rank = 0; rank < group.size(); ++rank) rows += numbers(all, rank, dtype);
  const torch::Tensor mine = torch::zeros({n}, dtype);
  group.reduce_scatter(mine, numbers(all, group.rank(), dtype)).wait();
  CHECK(at::equal(mine, rows.narrow(0, group.rank() * n, n)));
}

void check_copies(Group& group, torch::Dtype dtype, int64_t n) {
  const int64_t all = n * group.size();
  const torch::Tensor expected = numbers(all, 5, dtype);
  const torch::Tensor out = torch::zeros({all}, dtype);
  group.all_gather(out, expected.narrow(0, group.rank() * n, n).clone()).wait();
  CHECK(at::equal(out, expected));
  const torch::Tensor in_place = torch::zeros({all}, dtype);
  const torch::Tensor own = in_place.narrow(0, group.rank() * n, n);
  own.copy_(expected.narrow(0, group.rank() * n, n));
  group.all_gather(in_place, own).wait();
  CHECK(at::equal(in_place, expected));
  for (int root = 0; root < group.size(); ++root) {
    const torch::Tensor tensor = numbers(n, group.rank(), dtype);
    group.broadcast(tensor, root).wait();
    CHECK(at::equal(tensor, numbers(n, root, dtype)));
  }
  const torch::Tensor received = torch::zeros({all}, dtype);
  group.all_to_all(received, numbers(all, group.rank(), dtype)).wait();
  for (int rank = 0; rank < group.size(); ++rank)
    CHECK(at::equal(received.narrow(0, rank * n, n),
                    numbers(all, rank, dtype).narrow(0, group.rank() * n, n)));
}

}  // namespace

TEST_CASE("every verb gives over machines what it gives on one, for all sizes and dtypes") {
  for (const Names& nodes : kMachines) {
    CAPTURE(fmt::format("{}", fmt::join(nodes, " ")));
    on_machines(nodes, [&](std::shared_ptr<DeviceMesh> mesh) {
      CHECK(mesh->rank() == mesh->world().rank());
      CHECK(mesh->world_size() == std::ssize(nodes));
      for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble,
                               torch::kLong, torch::kInt}) {
        for (const int64_t n : {0, 1, 5, 4099}) {
          check_sums(mesh->world(), dtype, n);
          check_copies(mesh->world(), dtype, n);
        }
      }
      // Several pieces, and a rest that no number of ranks divides.
      const torch::Tensor many = torch::full({(9 << 20) / 4 + 17}, 1 + mesh->rank(), torch::kFloat);
      mesh->world().all_reduce(many).wait();
      const int size = mesh->world_size();
      CHECK(many.eq(size * (size + 1) / 2).all().item<bool>());
      check_copies(mesh->world(), torch::kFloat, 100'003);
    });
  }
}

// In floats the order of a sum is seen: within each machine by rank, then by machine.
TEST_CASE("a sum is ordered by rank within machines and then by machine, bit for bit") {
  for (const Names& nodes : {Names{"a", "a", "b", "b"}, Names{"a", "a", "b", "b", "c", "c"},
                             Names{"a", "b", "a", "b"}}) {
    on_machines(nodes, [&](std::shared_ptr<DeviceMesh> mesh) {
      for (const int64_t n : {100, 100'003}) {
        const auto of_rank = [&](int rank) {
          return at::sin(torch::arange(n, torch::kFloat) * (rank + 1));
        };
        torch::Tensor expected;
        for (const Node& node : mesh->nodes()) {
          torch::Tensor sum = of_rank(node.ranks[0]);
          for (size_t i = 1; i < node.ranks.size(); ++i) sum = sum + of_rank(node.ranks[i]);
          expected = expected.defined() ? expected + sum : sum;
        }
        const torch::Tensor sum = of_rank(mesh->rank());
        mesh->world().all_reduce(sum).wait();
        CHECK(at::equal(sum, expected));
      }
    });
  }
}

TEST_CASE("parts of the world stay on a machine or cross machines, as their ranks do") {
  const MeshShape grid = MeshShape::data_parallel(2).with(MeshDim::kTp, 2);
  on_machines(
      {"a", "a", "b", "b"},
      [](std::shared_ptr<DeviceMesh> mesh) {
        Group& tensor = mesh->group({MeshDim::kTp});
        check_sums(tensor, torch::kFloat, 5000);
        CHECK(tensor.times().bytes_sent == 0);
        check_sums(mesh->dp_group(), torch::kFloat, 5000);
        check_copies(mesh->dp_group(), torch::kFloat, 5000);
        CHECK(mesh->dp_group().times().bytes_sent > 0);
        CHECK(mesh->notes().empty());
      },
      grid);
  // The other way round: shared layers cross, and both kinds of group have ranks everywhere.
  on_machines(
      {"a", "b", "a", "b"},
      [](std::shared_ptr<DeviceMesh> mesh) {
        check_sums(mesh->group({MeshDim::kTp}), torch::kFloat, 5000);
        check_sums(mesh->dp_group(), torch::kFloat, 5000);
        CHECK(mesh->dp_group().times().bytes_sent == 0);
        REQUIRE(mesh->notes().size() == 1);
        CHECK(mesh->notes()[0] ==
              "ranks 0 and 1 share every layer and are on different machines (a, b): each layer "
              "waits "
              "for the network; an autotp_size of at most 2 keeps such ranks on one machine");
      },
      grid);
  const MeshShape wide = MeshShape::data_parallel(3).with(MeshDim::kTp, 2);
  on_machines(
      {"a", "a", "a", "b", "b", "b"},
      [](std::shared_ptr<DeviceMesh> mesh) {
        check_sums(mesh->group({MeshDim::kTp}), torch::kFloat, 77);
        check_sums(mesh->dp_group(), torch::kFloat, 77);
        check_sums(mesh->secondary_shard_group(1, 1), torch::kFloat, 77);
      },
      wide);
}

TEST_CASE("a large sum sends each byte to the other machine once") {
  on_machines({"a", "a", "b", "b"}, [](std::shared_ptr<DeviceMesh> mesh) {
    constexpr int64_t kBytes = 16 << 20;
    mesh->world().all_reduce(torch::ones({kBytes / 4})).wait();
    CHECK(mesh->times().bytes_sent == kBytes / 2);  // the other half by the other rank
    const torch::Tensor part = torch::ones({kBytes / 16});
    mesh->world().all_gather(torch::empty({kBytes / 4}), part).wait();
    CHECK(mesh->times().bytes_sent == kBytes / 2 + kBytes / 4);
    mesh->world().reduce_scatter(part, torch::ones({kBytes / 4})).wait();
    CHECK(mesh->times().bytes_sent == kBytes / 2 + kBytes / 4 + kBytes / 4);
    CHECK(mesh->times().bytes == 3 * kBytes);
    CHECK(mesh->times().collectives == 3);
  });
}

// Each rank is needed by one collective while it waits for another.
TEST_CASE("collectives may be waited for in other orders on other ranks") {
  const MeshShape grid = MeshShape::data_parallel(2).with(MeshDim::kTp, 2);
  for (const Names& nodes : {Names{"a", "a", "b", "b"}, Names{"a", "b", "a", "b"}}) {
    on_machines(
        nodes,
        [](std::shared_ptr<DeviceMesh> mesh) {
          constexpr int64_t kNumel = 4 << 20;
          const auto values = [&] { return torch::full({kNumel}, 1.0 + mesh->rank()); };
          const torch::Tensor all = values(), rows = values(), columns = values();
          const torch::Tensor gathered = torch::empty({4 * kNumel}), part = values();
          std::vector<CollectiveHandle> pending;
          pending.push_back(mesh->world().all_reduce(all));
          pending.push_back(mesh->group({MeshDim::kTp}).all_reduce(rows));
          pending.push_back(mesh->dp_group().all_reduce(columns));
          pending.push_back(mesh->world().all_gather(gathered, part));
          for (size_t i = 0; i < 4; ++i)
            pending[(i + static_cast<size_t>(mesh->rank())) % 4].wait();
          CHECK(all.eq(10).all().item<bool>());
          CHECK(rows.eq(mesh->rank() < 2 ? 3 : 7).all().item<bool>());
          CHECK(columns.eq(mesh->rank() % 2 == 0 ? 4 : 6).all().item<bool>());
          CHECK(gathered.narrow(0, 3 * kNumel, kNumel).eq(4).all().item<bool>());
        },
        grid);
  }
}

TEST_CASE("a rank that does not come is named with its machine on all machines") {
  std::vector<std::string> messages(4);
  std::atomic<int> reported = 0;
  RankOptions options{.timeout = std::chrono::seconds(2)};
  options.nodes = {"a", "a", "b", "b"};
  run_ranks(
      4,
      [&](std::shared_ptr<DeviceMesh> mesh) {
        barrier(*mesh);
        if (mesh->rank() == 3) {
          for (int tick = 0; tick < 6000 && reported < 3; ++tick)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        messages[static_cast<size_t>(mesh->rank())] = message_of<Error>([&] {
          mesh->world().all_reduce(torch::ones({100'000}), ReduceOp::kSum, "gradients").wait();
        });
        ++reported;
      },
      options);
  for (const int rank : {0, 1, 2}) {
    CAPTURE(rank);
    const std::string& message = messages[static_cast<size_t>(rank)];
    CAPTURE(message);
    CHECK(message.find("gradients") != std::string::npos);
    CHECK(message.find("missing: rank 3 (process ") != std::string::npos);
    CHECK(message.find(" on b)") != std::string::npos);
  }
}

TEST_CASE("a rank that is gone ends the wait on all machines, and is named") {
  std::vector<std::string> messages(4);
  on_machines({"a", "a", "b", "b"}, [&](std::shared_ptr<DeviceMesh> mesh) {
    barrier(*mesh);
    if (mesh->rank() == 3) return;
    messages[static_cast<size_t>(mesh->rank())] = message_of<Error>([&] {
      mesh->world().all_reduce(torch::ones({100'000}), ReduceOp::kSum, "gradients").wait();
    });
  });
  CHECK(messages[2].find("rank 3 on b is gone") != std::string::npos);
  for (const int rank : {0, 1, 2}) {
    CAPTURE(messages[static_cast<size_t>(rank)]);
    CHECK(messages[static_cast<size_t>(rank)].find("rank 3 ") != std::string::npos);
  }
}

}  // namespace zeroth::comm::hierarchical_group_test
