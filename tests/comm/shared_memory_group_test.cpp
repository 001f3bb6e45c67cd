#include "comm/groups/shared_memory_group.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/ranks.h"
#include "tests/support/waited.h"

namespace zeroth::comm::shared_memory_group_test {
namespace {

// Slots so small that most tensors take many pieces and more than all slots.
constexpr RingSize kTinyRing{.slot_bytes = 4096, .slots = 4};

struct Setup {
  RingSize ring = kTinyRing;
  std::chrono::milliseconds timeout{20'000};
  std::chrono::milliseconds log_after = SlowWait::kFirst;
};

// Calls fn on ranks that are threads; rethrows nothing, each fn checks for itself.
void with_group(int size, const std::function<void(Group&)>& fn, const Setup& setup = {}) {
  const auto segment = SharedSegment::create(shared_memory_group_bytes(size, setup.ring));
  testing::renew_thread_pool();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      at::set_num_threads(1);
      const auto table = std::make_shared<RankTable>(segment, rank, size);
      const auto group = make_shared_memory_group(
          segment, table, rank, size,
          {.timeout = setup.timeout, .log_after = setup.log_after, .ring = setup.ring});
      fn(*group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

torch::Tensor random(int64_t numel, int seed, torch::Dtype dtype = torch::kFloat) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn({numel}, generator, torch::TensorOptions(torch::kFloat)).to(dtype);
}

// Accumulated in fp32 in the order of the ranks, rounded once.
torch::Tensor expected_sum(int64_t numel, int ranks, torch::Dtype dtype) {
  torch::Tensor sum = random(numel, 0, dtype).to(torch::kFloat);
  for (int rank = 1; rank < ranks; ++rank) sum += random(numel, rank, dtype).to(torch::kFloat);
  return sum.to(dtype);
}

}  // namespace

TEST_CASE("sums are bit-equal to those in rank order in fp32, whatever the size and the pieces") {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t numel : {1, 2, 17, 1000, 5000, 12'345, 70'001}) {
      for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
        CAPTURE(ranks);
        CAPTURE(numel);
        const torch::Tensor expected = expected_sum(numel, ranks, dtype);
        with_group(ranks, [&](Group& group) {
          const torch::Tensor mine = random(numel, group.rank(), dtype);
          group.all_reduce(mine).wait();
          CHECK(at::equal(mine, expected));
        });
      }
    }
  }
}

TEST_CASE("a collective that waits long says for whom, and one rank says it") {
  const ChildResult result = in_child([] {
    with_group(3,
               [](Group& group) {
                 if (group.rank() == 0)
                   std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                 group.all_reduce(torch::zeros({4}), ReduceOp::kSum, "gradients").wait();
               },
               {.log_after = std::chrono::milliseconds(500)});
    return 0;
  });
  CHECK(result.status == 0);
  CHECK_MESSAGE(result.err.starts_with("zeroth: rank 1 of 3 is waiting: "), result.err);
  CHECK(result.err.find("gradients") != std::string::npos);
  CHECK(result.err.find("missing: rank 0") != std::string::npos);
  CHECK(result.err.find(" s so far, up to 20 s (--timeout)\n") != std::string::npos);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("all-reduce is bit-equal to reduce-scatter and all-gather") {
  for (const RingSize ring : {kTinyRing, RingSize::for_ranks(3)}) {
    with_group(3,
               [](Group& group) {
                 for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
                   const int64_t part = 7001;
                   const torch::Tensor in = random(part * 3, group.rank(), dtype);
                   const torch::Tensor sum = in.clone();
                   group.all_reduce(sum).wait();
                   const torch::Tensor own = torch::empty({part}, dtype);
                   group.reduce_scatter(own, in).wait();
                   const torch::Tensor whole = torch::empty({part * 3}, dtype);
                   group.all_gather(whole, own).wait();
                   CHECK(at::equal(whole, sum));
                 }
               },
               {.ring = ring});
  }
}

TEST_CASE("integers, doubles and truth values are reduced exactly") {
  with_group(3, [](Group& group) {
    const int64_t rank = group.rank();
    const torch::Tensor large = torch::full({3000}, (int64_t{1} << 60) + rank, torch::kLong);
    group.all_reduce(large).wait();
    CHECK(at::equal(large, torch::full({3000}, 3 * (int64_t{1} << 60) + 3, torch::kLong)));
    const torch::Tensor any = torch::full({5}, rank == 1, torch::kBool);
    group.all_reduce(any, ReduceOp::kMax).wait();
    CHECK(any.all().item<bool>());
    const torch::Tensor bytes = torch::full({5}, rank, torch::kByte);
    group.all_reduce(bytes, ReduceOp::kMin).wait();
    CHECK(bytes.sum().item<int64_t>() == 0);
  });
}

TEST_CASE("reduce-scatter may write into its own part of the input") {
  with_group(3, [](Group& group) {
    const int64_t part = 3000;
    const torch::Tensor in = random(part * 3, group.rank());
    const torch::Tensor own = in.narrow(0, group.rank() * part, part);
    group.reduce_scatter(own, in).wait();
    CHECK(at::equal(own,
                    expected_sum(part * 3, 3, torch::kFloat).narrow(0, group.rank() * part, part)));
  });
}

TEST_CASE(
    "many collectives under way end in any order of waits, with other orders on other ranks") {
  with_group(3, [](Group& group) {
    constexpr int kCount = 12;
    std::vector<torch::Tensor> tensors;
    std::vector<CollectiveHandle> pending;
    for (int i = 0; i < kCount; ++i) {
      tensors.push_back(torch::full({int64_t{1} << i}, group.rank() + i));
      if (i % 3 == 2) {
        pending.push_back(group.broadcast(tensors.back(), i % 2));
      } else {
        pending.push_back(group.all_reduce(tensors.back()));
      }
    }
    for (int i = 0; i < kCount; ++i) {
      pending[static_cast<size_t>((i * 5 + group.rank() * 7) % kCount)].wait();
    }
    for (int i = 0; i < kCount; ++i) {
      const double value = i % 3 == 2 ? i % 2 + i : 3 * i + 3;
      CHECK(at::equal(tensors[static_cast<size_t>(i)], torch::full({int64_t{1} << i}, value)));
    }
  });
}

TEST_CASE("tensors without elements take part") {
  with_group(2, [](Group& group) {
    group.all_gather(torch::empty({0}), torch::empty({0})).wait();
    CollectiveHandle empty = group.all_reduce(torch::empty({0}));
    const torch::Tensor one = torch::ones({1});
    group.all_reduce(one).wait();
    empty.wait();
    CHECK(one.item<double>() == 2);
  });
}

TEST_CASE("a collective that is refused leaves no trace: the next one is the same on all ranks") {
  with_group(2, [](Group& group) {
    if (group.rank() == 1)
      CHECK_THROWS_AS(group.all_reduce(at::zeros({4, 4}).t(), ReduceOp::kSum), InternalError);
    const torch::Tensor ones = at::ones({3});
    group.all_reduce(ones).wait();
    CHECK(at::equal(ones, at::full({3}, 2.0F)));
    CHECK(group.times().collectives == 1);
  });
}

TEST_CASE("ranks that issue different collectives are told so") {
  with_group(2, [](Group& group) {
    std::string message;
    try {
      if (group.rank() == 0) group.all_reduce(torch::zeros({5}), ReduceOp::kSum, "losses").wait();
      if (group.rank() == 1) group.all_reduce(torch::zeros({6}), ReduceOp::kSum, "norms").wait();
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(message);
    if (group.rank() == 0) {
      CHECK(message.find("rank 1 issued a different collective: rank 1 (process ") !=
            std::string::npos);
      CHECK(message.find("all-reduce of norms (6 elements)") != std::string::npos);
    }
  });
}

TEST_CASE("a rank that does not come is named when the time limit has passed, with what it did") {
  std::atomic<int> reported = 0;
  with_group(
      3,
      [&](Group& group) {
        const torch::Tensor sum = torch::ones({1});
        group.all_reduce(sum, ReduceOp::kSum, "the first sums").wait();
        if (group.rank() == 1) {
          for (int tick = 0; tick < 6000 && reported < 2; ++tick)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        std::string message;
        try {
          group.all_gather(torch::zeros({30}), torch::zeros({10}), "parameters of block 3").wait();
        } catch (const Error& error) {
          message = error.what();
        }
        ++reported;
        CAPTURE(message);
        CHECK(message.find("all-gather of parameters of block 3 (30 elements) over 'world' failed: "
                           "timed out after ") != std::string::npos);
        CHECK(testing::seconds_waited(message) >= 2);
        CHECK(message.find("ranks 0, 2 arrived; missing: rank 1 (process ") != std::string::npos);
        CHECK(message.find("last finished all-reduce of the first sums (1 elements)") !=
              std::string::npos);
      },
      {.timeout = std::chrono::seconds(2)});
}

TEST_CASE("a group can be closed while its collectives are under way") {
  with_group(2, [](Group& group) {
    const torch::Tensor tensor = torch::zeros({100'000});
    group.all_reduce(tensor);
  });
}

}  // namespace zeroth::comm::shared_memory_group_test
