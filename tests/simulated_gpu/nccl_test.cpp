// NCCL between simulated GPUs: what is summed, what a late stream does to those who do not wait,
// and who is named where a rank does not come.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "comm/groups/nccl.h"
#include "comm/groups/peer_reports.h"
#include "comm/groups/rank_table.h"
#include "device/gpu.h"
#include "tests/simulated_gpu/of_library.h"
#include "tests/support/ranks.h"

namespace zeroth::simulated::nccl_test {
namespace {

using comm::ReduceOp;
using torch::Tensor;

const testing::RankOptions kNccl{.transport = testing::Transport::kNccl};

// What this pace does not run before somebody waits for it.
bool streams_are_late() {
  const char* pace = std::getenv("ZEROTH_SIMULATED_PACE");
  const std::string_view name = pace == nullptr ? "late" : pace;
  return name == "late" || name == "default-first";
}

// The values 0, 1, ... of rank 0, and 10 more for each rank after it: their sums fit into a bf16.
Tensor values(int rank, int64_t numel, torch::Dtype dtype) {
  return (torch::arange(numel) + 10 * rank).to(dtype);
}

// The first of two ranks waits for the second one, which comes too late, or has left. On one
// machine a table has what they do, on two they tell each other.
std::string message_about(bool leaves, bool on_two_machines = false) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto segment = comm::SharedSegment::create(comm::RankTable::bytes(2));
  std::string message;
  std::promise<std::string> stuck;
  std::promise<void> named;
  std::atomic<bool> once = false;
  const auto reports_of = [&](int rank) {
    return std::make_shared<comm::PeerReports>(store, rank, comm::Nodes{{"a", {0}}, {"b", {1}}},
                                               std::chrono::seconds(5));
  };
  const auto rank_thread = [&](int rank) {
    device::load_gpu().select(rank);
    const torch::Device gpu(torch::kCUDA, static_cast<c10::DeviceIndex>(rank));
    const auto group = comm::load_nccl().make_group(
        store, rank, 2,
        {.timeout = std::chrono::seconds(leaves ? 60 : 5),
         .tables =
             [&](const comm::Partition&) {
               return on_two_machines ? nullptr
                                      : std::make_shared<comm::RankTable>(segment, rank, 2);
             },
         .reports = on_two_machines ? reports_of(rank) : nullptr,
         .on_hang =
             [&](const std::string& why) {
               if (!once.exchange(true)) stuck.set_value(why);
             }});
    const Tensor x = torch::ones({8}, torch::device(gpu));
    group->all_reduce(x, ReduceOp::kSum, "losses").wait();
    CHECK(x.sum().item<double>() == 16);  // waits for the GPU
    if (rank == 1 && leaves) return;
    if (rank == 1) named.get_future().wait();
    group->all_reduce(x, ReduceOp::kSum, "gradients").wait();
    if (rank == 1) return;
    auto future = stuck.get_future();
    if (future.wait_for(std::chrono::minutes(1)) == std::future_status::ready)
      message = future.get();
    named.set_value();
  };
  std::thread second(rank_thread, 1);
  rank_thread(0);
  second.join();
  return message;
}

}  // namespace

TEST_CASE("a group's stream has high priority, which NCCL is asked for") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  device::load_gpu().select(0);
  std::optional<comm::NcclGroupSpec> place;
  CHECK_THROWS_WITH_AS(
      comm::make_nccl_group(
          store, 0, 1, {},
          [&](const comm::NcclGroupSpec& given) -> c10::intrusive_ptr<c10d::Backend> {
            place = given;
            throw Error("no backend here");
          }),
      doctest::Contains("no backend here"), Error);
  REQUIRE(place.has_value());
  CHECK(place->high_priority);
}

TEST_CASE("events of collectives are used again, also where nobody asks how long these took") {
  const auto events = of_library<int64_t()>("zeroth_simulated_events");
  device::load_gpu().select(0);
  const auto group = comm::load_nccl().make_group(c10::make_intrusive<c10d::HashStore>(), 0, 1, {});
  const Tensor x = torch::ones({8}, torch::device(torch::kCUDA));
  const int64_t before = events();
  constexpr int kCollectives = 100;
  for (int i = 0; i < kCollectives; ++i) {
    group->all_reduce(x, ReduceOp::kMax, "x").wait();
    torch::cuda::synchronize();
  }
  // One of the simulated NCCL for each, and those of two collectives.
  CHECK(events() - before <= kCollectives + 2 * 3);
  CHECK(group->times().collectives == kCollectives);
  CHECK(group->times().in_flight_s > 0);
}

TEST_CASE("each collective gives every GPU what it is to have, for each dtype") {
  for (const int count : {1, 2, 3, 4}) {
    testing::run_ranks(
        count,
        [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          comm::Group& group = mesh->world();
          constexpr int64_t kPart = 5;
          for (const auto dtype :
               {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble, torch::kLong}) {
            const auto of = [&](int rank, int64_t numel) { return values(rank, numel, dtype); };
            const Tensor part = of(mesh->rank(), kPart).to(mesh->device());
            const Tensor whole = of(mesh->rank(), kPart * count).to(mesh->device());
            std::vector<Tensor> parts, transposed;
            Tensor sum = torch::zeros({kPart * count}, dtype);
            for (int rank = 0; rank < count; ++rank) {
              parts.push_back(of(rank, kPart));
              sum += of(rank, kPart * count);
              transposed.push_back(of(rank, kPart * count).narrow(0, mesh->rank() * kPart, kPart));
            }
            Tensor out = torch::empty_like(whole);
            group.all_gather(out, part).wait();
            CHECK(at::equal(out.cpu(), torch::cat(parts)));
            group.all_to_all(out, whole).wait();
            CHECK(at::equal(out.cpu(), torch::cat(transposed)));
            Tensor own = torch::empty_like(part);
            group.reduce_scatter(own, whole).wait();
            CHECK(at::equal(own.cpu(), sum.narrow(0, mesh->rank() * kPart, kPart)));
            group.all_reduce(whole).wait();
            CHECK(at::equal(whole.cpu(), sum));
            group.all_reduce(part, ReduceOp::kMax).wait();
            CHECK(at::equal(part.cpu(), of(count - 1, kPart)));
            group.broadcast(out, count - 1).wait();
            CHECK(at::equal(out.narrow(0, 0, 1).cpu(),
                            of(0, kPart * count).narrow(0, (count - 1) * kPart, 1)));
            group.all_reduce(torch::empty({0}, part.options())).wait();
          }
        },
        kNccl);
  }
}

TEST_CASE("a result that nobody waited for is not there while streams are late") {
  testing::run_ranks(
      2,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto on = torch::device(mesh->device());
        const Tensor out = torch::zeros({1000}, on);
        comm::CollectiveHandle pending =
            mesh->world().all_gather(out, torch::full({500}, 1.0 + mesh->rank(), on));
        const double too_early = out.sum().item<double>();
        if (streams_are_late()) CHECK_FALSE(too_early == 1500);
        // Whoever waits for the collective runs it for both ranks.
        mesh->cpu_group().all_reduce(torch::zeros({1})).wait();
        pending.wait();
        CHECK(out.sum().item<double>() == 1500);
      },
      kNccl);
}

TEST_CASE("groups of a grid's axes have streams of their own on each GPU") {
  testing::RankOptions options = kNccl;
  options.grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kTp, 2);
  testing::run_ranks(
      4,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        const Tensor x = torch::full({4}, 1.0 + mesh->rank(), torch::device(mesh->device()));
        const Tensor y = x.clone(), z = x.clone();
        comm::CollectiveHandle first = mesh->group({comm::MeshDim::kDp}).all_reduce(x);
        comm::CollectiveHandle second = mesh->group({comm::MeshDim::kTp}).all_reduce(y);
        comm::CollectiveHandle third = mesh->world().all_reduce(z);
        for (comm::CollectiveHandle* pending : {&third, &second, &first}) pending->wait();
        const int across = mesh->rank() ^ 2, beside = mesh->rank() ^ 1;
        CHECK(x[0].item<double>() == 2 + mesh->rank() + across);
        CHECK(y[0].item<double>() == 2 + mesh->rank() + beside);
        CHECK(z[0].item<double>() == 10);
      },
      options);
}

TEST_CASE("a rank that does not begin a collective is named, and so is one that has left") {
  const std::string late = message_about(/*leaves=*/false);
  CHECK(late.starts_with("rank 0 of 2: all-reduce of gradients (8 elements)"));
  CHECK(late.find("missing: rank 1 (process ") != std::string::npos);
  CHECK(late.find("last finished all-reduce of losses") != std::string::npos);
  const std::string gone = message_about(/*leaves=*/true);
  CHECK(gone.starts_with("rank 0 of 2: all-reduce of gradients (8 elements)"));
  CHECK(gone.find("rank 1 is gone") != std::string::npos);
  const std::string far = message_about(/*leaves=*/false, /*on_two_machines=*/true);
  CHECK(far.starts_with("rank 0 of 2: all-reduce of gradients (8 elements)"));
  CHECK(far.find("rank 1 on b reports nothing") != std::string::npos);
}

}  // namespace zeroth::simulated::nccl_test
