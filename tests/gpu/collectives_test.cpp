// Collectives of tensors on the GPU: NCCL as far as one rank can show it, and host memory between
// ranks that share the GPU.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/groups/group.h"
#include "comm/groups/nccl.h"
#include "comm/groups/shared_memory_group.h"
#include "device/gpu.h"
#include "device/memory_use.h"

namespace zeroth::comm::collectives_test {
namespace {

const torch::TensorOptions kOn = torch::device(torch::kCUDA);

// The width of a product that takes a GPU some milliseconds. A simulated one is late, or is not, as
// it pleases.
#ifdef ZEROTH_SIMULATED_GPU
constexpr int64_t kBusy = 64;
#else
constexpr int64_t kBusy = 4096;
#endif

// A group of one rank, whose watchdog would end the test.
std::unique_ptr<Group> nccl_group() {
  return load_nccl().make_group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                {.timeout = std::chrono::seconds(30)});
}

}  // namespace

TEST_CASE("NCCL's collectives of one rank give back what went in, for each dtype") {
  CHECK(load_nccl().version() > 20000);
  const auto group = nccl_group();
  for (const auto dtype :
       {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble, torch::kLong}) {
    const torch::Tensor in = torch::arange(1000, kOn.dtype(dtype));
    const torch::Tensor sum = in.clone(), out = torch::zeros_like(in), part = torch::zeros_like(in);
    group->all_reduce(sum).wait();
    group->all_reduce(sum, ReduceOp::kMax).wait();
    group->all_gather(out, in, "parameters").wait();
    group->reduce_scatter(part, in, "gradients").wait();
    group->broadcast(out, 0).wait();
    for (const torch::Tensor& tensor : {sum, out, part}) CHECK(at::equal(tensor, in));
  }
}

TEST_CASE("a collective is ordered against work before and after it on the current stream") {
  const auto group = nccl_group();
  const torch::Tensor large = torch::ones({kBusy, kBusy}, kOn);
  torch::Tensor in = at::mm(large, large);  // takes a while
  const torch::Tensor out = torch::zeros_like(in);
  CollectiveHandle pending = group->all_gather(out.view(-1), in.view(-1));
  pending.wait();
  in.zero_();  // after the collective has read it
  CHECK(at::equal(out, torch::full({kBusy, kBusy}, static_cast<double>(kBusy), kOn)));
}

TEST_CASE("outputs that the host is done with are memory again, however far behind the GPU is") {
  const auto group = nccl_group();
  const torch::Tensor in = torch::ones({1 << 20}, kOn);
  const auto allocated = [&] { return device::memory_use(in.device()).device_allocated; };
  torch::Tensor large = torch::full({kBusy, kBusy}, 1.0 / kBusy, kOn);
  for (int i = 0; i < 8; ++i) large = at::mm(large, large);
  const torch::Tensor sum = torch::zeros({}, kOn);
  const int64_t before = allocated();
  int64_t max_difference = 0;
  for (int i = 0; i < 50; ++i) {
    const torch::Tensor out = torch::empty_like(in);
    group->all_gather(out, in).wait();
    max_difference = std::max(max_difference, allocated() - before);
    sum.add_(out[i]);
  }
  CHECK(max_difference < 2 * static_cast<int64_t>(in.nbytes()));
  CHECK(sum.item<double>() == 50);
}

TEST_CASE("the stream's waits for NCCL are measured when the device has come through them") {
  const auto group = nccl_group();
  const torch::Tensor tensor = torch::ones({1 << 22}, kOn);
  for (int i = 0; i < 10; ++i) group->all_reduce(tensor).wait();
  c10::impl::VirtualGuardImpl(torch::kCUDA).synchronizeDevice(tensor.device().index());
  const CommTimes times = group->times();
  CHECK(times.collectives == 10);
  CHECK(times.bytes == 10 * (int64_t{4} << 22));
  CHECK(times.in_flight_s > 0);
  CHECK(times.waiting_s <= times.in_flight_s);
  CHECK(times.in_flight_s < 10);
}

TEST_CASE("ranks that share the GPU sum through host memory, in rank order") {
  constexpr int kRanks = 2;
  const RingSize ring = RingSize::for_ranks(kRanks);
  const auto segment = SharedSegment::create(shared_memory_group_bytes(kRanks, ring));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      device::load_gpu().select(0);
      const auto group = make_cpu_staged_group(make_shared_memory_group(
          segment, std::make_shared<RankTable>(segment, rank, kRanks), rank, kRanks,
          {.timeout = std::chrono::seconds(30), .ring = ring}));
      for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
        const int64_t part = 3'000'000;
        const torch::Tensor in = torch::full({part * kRanks}, rank + 1, kOn.dtype(dtype));
        const torch::Tensor own = torch::empty({part}, kOn.dtype(dtype));
        const torch::Tensor whole = torch::empty({part * kRanks}, kOn.dtype(dtype));
        CollectiveHandle first = group->reduce_scatter(own, in);
        first.wait();
        group->all_gather(whole, own * (rank + 1)).wait();
        CHECK(at::equal(whole.narrow(0, 0, part), torch::full({part}, 3, kOn.dtype(dtype))));
        CHECK(at::equal(whole.narrow(0, part, part), torch::full({part}, 6, kOn.dtype(dtype))));
        group->all_reduce(in).wait();
        CHECK(at::equal(in, torch::full({part * kRanks}, 3, kOn.dtype(dtype))));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace zeroth::comm::collectives_test
