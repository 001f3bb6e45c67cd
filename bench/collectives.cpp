// Collectives of ranks on one host: shared memory beside Gloo over loopback.
//
//   build/bin/collectives [RANKS]
//
// GB/s is the whole tensor (reduced, gathered, scattered) over the time of one blocking collective;
// each rank is bound to one core.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "tests/support/ranks.h"

namespace {

using namespace zeroth;
using testing::Transport;

constexpr int64_t kSizes[] = {1 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr double kSecondsPerRow = 0.3;

void bind_to_core(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<size_t>(rank) % std::thread::hardware_concurrency(), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// Seconds of one call on this rank; every rank makes the same number of them.
double seconds_per_call(comm::Group& group, const std::function<void()>& call) {
  const auto run = [&](int64_t count) {
    group.all_reduce(torch::zeros({1})).wait();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  run(2);
  const torch::Tensor once = torch::full({1}, run(3) / 3, torch::kDouble);
  group.all_reduce(once, comm::ReduceOp::kMax).wait();
  const auto count =
      std::max<int64_t>(3, static_cast<int64_t>(kSecondsPerRow / once.item<double>()));
  return run(count) / static_cast<double>(count);
}

// (collective, bytes of the whole tensor) -> seconds
using Times = std::map<std::pair<std::string, int64_t>, double>;

Times measure(int ranks, Transport transport) {
  Times times;
  testing::run_ranks(ranks,
                     [&](std::shared_ptr<comm::DeviceMesh> mesh) {
                       comm::Group& group = mesh->world();
                       for (const int64_t bytes : kSizes) {
                         const torch::Tensor full = torch::zeros({bytes / 4 / ranks * ranks});
                         const torch::Tensor shard = torch::zeros({full.numel() / ranks});
                         const std::map<std::string, std::function<void()>> calls = {
                             {"all-reduce", [&] { group.all_reduce(full).wait(); }},
                             {"all-gather", [&] { group.all_gather(full, shard).wait(); }},
                             {"reduce-scatter", [&] { group.reduce_scatter(shard, full).wait(); }}};
                         for (const auto& [name, call] : calls) {
                           const double seconds = seconds_per_call(group, call);
                           if (mesh->rank() == 0) times[{name, bytes}] = seconds;
                         }
                       }
                     },
                     {.transport = transport, .before_joining = bind_to_core});
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const Times shared = measure(ranks, Transport::kSharedMemory);
  const Times gloo = measure(ranks, Transport::kGloo);
  fmt::print("{} ranks, fp32\n{:16}{:>10}{:>14}{:>14}{:>12}{:>10}\n", ranks, "collective", "KiB",
             "shared us", "shared GB/s", "Gloo GB/s", "ratio");
  for (const auto& [row, seconds] : shared) {
    const auto& [name, bytes] = row;
    const double other = gloo.at(row), volume = static_cast<double>(bytes) / 1e9;
    fmt::print("{:16}{:>10}{:>14.1f}{:>14.2f}{:>12.2f}{:>10.1f}\n", name, bytes >> 10,
               seconds * 1e6, volume / seconds, volume / other, other / seconds);
  }
}
