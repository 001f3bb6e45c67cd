#include "comm/groups/group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::comm::group_test {
namespace {

using testing::Transport;

constexpr Transport kTransports[] = {Transport::kSharedMemory, Transport::kGloo};

// One suite over every kind of group; at size 1 it is the solo one. Then over parts of a grid, and
// over tensors of the CPU that go by a device. `on` is the ranks' device.
void for_groups(const std::function<void(Group&, torch::TensorOptions on)>& fn) {
  for (const Transport transport : kTransports) {
    for (const int ranks : {1, 2, 3, 5}) {
      CAPTURE(ranks);
      testing::run_ranks(
          ranks, [&](std::shared_ptr<DeviceMesh> mesh) { fn(mesh->world(), mesh->device()); },
          {.transport = transport});
    }
    testing::run_ranks(
        6,
        [&](std::shared_ptr<DeviceMesh> mesh) {
          fn(mesh->group({MeshDim::kTp}), mesh->device());
          fn(*make_device_staged_group(mesh->world(), mesh->device()), torch::kCPU);
        },
        {.transport = transport, .grid = MeshShape::data_parallel(2).with(MeshDim::kTp, 3)});
  }
}

}  // namespace

TEST_CASE("all-reduce sums, and takes the least and the most") {
  for_groups([](Group& group, torch::TensorOptions on) {
    const double rank = group.rank(), size = group.size();
    for (const auto dtype :
         {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble, torch::kLong}) {
      const torch::Tensor tensor = torch::full({5}, rank + 1, on.dtype(dtype));
      group.all_reduce(tensor).wait();
      CHECK(at::equal(tensor, torch::full({5}, size * (size + 1) / 2, on.dtype(dtype))));
    }
    const torch::Tensor min = torch::full({1}, rank, on), max = torch::full({1}, rank, on);
    group.all_reduce(min, ReduceOp::kMin).wait();
    group.all_reduce(max, ReduceOp::kMax).wait();
    CHECK(min.item<double>() == 0);
    CHECK(max.item<double>() == size - 1);
  });
}

TEST_CASE("all-gather lays the ranks' parts side by side, also in place") {
  for_groups([](Group& group, torch::TensorOptions on) {
    const torch::Tensor expected = torch::arange(group.size() * 4, on.dtype(torch::kFloat));
    const torch::Tensor mine = expected.narrow(0, group.rank() * 4, 4).clone();
    const torch::Tensor out = torch::zeros({group.size() * 4}, on);
    group.all_gather(out, mine).wait();
    CHECK(at::equal(out, expected));

    const torch::Tensor in_place = torch::zeros({group.size() * 4}, on);
    const torch::Tensor part = in_place.narrow(0, group.rank() * 4, 4);
    part.copy_(mine);
    group.all_gather(in_place, part).wait();
    CHECK(at::equal(in_place, expected));
  });
}

TEST_CASE("reduce-scatter gives each rank its part of the sum") {
  for_groups([](Group& group, torch::TensorOptions on) {
    const torch::Tensor base = torch::arange(group.size() * 3, on.dtype(torch::kFloat));
    const torch::Tensor out = torch::zeros({3}, on);
    group.reduce_scatter(out, base + group.rank()).wait();
    const double ranks_sum = group.size() * (group.size() - 1) / 2.0;
    CHECK(at::equal(out, base.narrow(0, group.rank() * 3, 3) * group.size() + ranks_sum));
  });
}

TEST_CASE("broadcast gives everybody the root's values") {
  for_groups([](Group& group, torch::TensorOptions on) {
    const torch::Tensor tensor = torch::full({2}, group.rank(), on);
    group.broadcast(tensor, group.size() - 1).wait();
    CHECK(tensor[0].item<int64_t>() == group.size() - 1);
  });
}

TEST_CASE("all-to-all hands each rank its part of everybody's") {
  for_groups([](Group& group, torch::TensorOptions on) {
    for (const int64_t n : {1, 3, 30'000}) {
      const int64_t all = n * group.size();
      const auto of_rank = [&](int rank) {
        return torch::arange(all, on.dtype(torch::kInt)) + 1000 * rank;
      };
      const torch::Tensor out = torch::zeros({all}, on.dtype(torch::kInt));
      group.all_to_all(out, of_rank(group.rank())).wait();
      for (int rank = 0; rank < group.size(); ++rank)
        CHECK(at::equal(out.narrow(0, rank * n, n), of_rank(rank).narrow(0, group.rank() * n, n)));
    }
  });
}

TEST_CASE("sizes that do not fit are a broken invariant") {
  for (const Transport transport : kTransports) {
    testing::run_ranks(
        2,
        [](std::shared_ptr<DeviceMesh> mesh) {
          Group& group = mesh->world();
          CHECK_THROWS_AS(group.all_gather(torch::zeros({3}), torch::zeros({2})), InternalError);
          group.all_reduce(torch::zeros({1})).wait();  // nobody leaves while others connect
        },
        {.transport = transport});
  }
}

TEST_CASE("a collective whose peer is gone fails with its name, its ranks and what they did last") {
  for (const Transport transport : kTransports) {
    std::string message;
    testing::run_ranks(
        2,
        [&](std::shared_ptr<DeviceMesh> mesh) {
          mesh->world().all_reduce(torch::zeros({1}), ReduceOp::kSum, "a first sum").wait();
          if (mesh->rank() == 1) return;  // leaves
          try {
            mesh->world().all_reduce(torch::zeros({100}), ReduceOp::kSum, "a second sum").wait();
          } catch (const Error& error) {
            message = error.what();
          }
        },
        {.transport = transport});
    CAPTURE(message);
    CHECK(message.find(
              "rank 0 of 2: all-reduce of a second sum (100 elements) over 'world' failed: ") == 0);
    CHECK(message.find("rank 0 arrived; missing: rank 1 (process ") != std::string::npos);
    CHECK(message.find(", has left) last finished all-reduce of a first sum (1 elements)") !=
          std::string::npos);
  }
}

TEST_CASE("a rank that does not come in time is named with what it did last") {
  for (const Transport transport : kTransports) {
    std::string message;
    std::atomic<bool> reported = false;
    testing::run_ranks(
        2,
        [&](std::shared_ptr<DeviceMesh> mesh) {
          mesh->world().all_reduce(torch::zeros({1}), ReduceOp::kSum, "a first sum").wait();
          if (mesh->rank() == 1) {
            for (int tick = 0; tick < 6000 && !reported; ++tick)
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return;
          }
          try {
            mesh->world()
                .all_gather(torch::zeros({20}), torch::zeros({10}), "parameters of block 3")
                .wait();
          } catch (const Error& error) {
            message = error.what();
          }
          reported = true;
        },
        {.transport = transport, .timeout = std::chrono::seconds(2)});
    CAPTURE(message);
    CHECK(
        message.find("rank 0 of 2: all-gather of parameters of block 3 (20 elements) over 'world' "
                     "failed: ") == 0);
    CHECK(message.find("rank 0 arrived; missing: rank 1 (process ") != std::string::npos);
    CHECK(message.find(") last finished all-reduce of a first sum (1 elements) ") !=
          std::string::npos);
  }
}

TEST_CASE("a group counts its collectives, their bytes and the time they take") {
  for (const Transport transport : kTransports) {
    testing::run_ranks(2,
                       [](std::shared_ptr<DeviceMesh> mesh) {
                         Group& group = mesh->world();
                         CHECK(group.times().collectives == 0);
                         group.all_reduce(torch::zeros({256})).wait();
                         group.all_gather(torch::zeros({512}), torch::zeros({256})).wait();
                         const CommTimes times = group.times();
                         CHECK(times.collectives == 2);
                         CHECK(times.bytes == 1024 + 2048);
                         CHECK(times.in_flight_s > 0);
                         CHECK(times.working_s + times.waiting_s <= times.in_flight_s * 1.01);
                       },
                       {.transport = transport});
  }
}

}  // namespace zeroth::comm::group_test
