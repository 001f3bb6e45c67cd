#include "tests/support/ranks.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/gloo_group.h"
#include "comm/join_host.h"
#include "comm/shared_memory_group.h"

namespace zeroth::testing {
namespace {

constexpr std::chrono::minutes kTimeout{1};

std::unique_ptr<comm::Group> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     int count, Transport transport) {
  if (count == 1) return comm::make_solo_group();
  const auto ring = comm::RingSize::for_ranks(count);
  auto host =
      comm::join_host(*store, "host", rank, count, comm::shared_memory_group_bytes(count, ring));
  if (!host.segment) throw Error("the ranks cannot share memory: {}", host.why_not);
  auto table = std::make_shared<comm::RankTable>(host.segment, rank, count);
  if (transport == Transport::kGloo) {
    return comm::make_gloo_group(store, rank, count,
                                 {.address = "127.0.0.1", .timeout = kTimeout, .table = table});
  }
  return comm::make_shared_memory_group(host.segment, table, rank, count,
                                        {.timeout = kTimeout, .ring = ring});
}

}  // namespace

void run_ranks(int count, const std::function<void(std::shared_ptr<comm::Mesh>)>& fn,
               Transport transport, const std::function<void(int rank)>& before_joining) {
  // c10d's flight recorder is one per process and not safe with several ranks in it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        if (before_joining) before_joining(rank);
        fn(std::make_shared<comm::Mesh>(torch::kCPU, connect(store, rank, count, transport)));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace zeroth::testing
