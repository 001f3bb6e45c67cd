#include "tests/support/ranks.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/gloo_group.h"
#include "comm/host_staged_group.h"
#include "comm/join_host.h"
#include "comm/shared_memory_group.h"
#include "device/gpu.h"

namespace zeroth::testing {
namespace {

std::unique_ptr<comm::Group> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     int count, const RankOptions& options) {
  if (count == 1) return comm::make_solo_group();
  const auto ring = comm::RingSize::for_ranks(count);
  auto host =
      comm::join_host(*store, "host", rank, count, comm::shared_memory_group_bytes(count, ring));
  if (!host.segment) throw Error("the ranks cannot share memory: {}", host.why_not);
  auto table = std::make_shared<comm::RankTable>(host.segment, rank, count);
  if (options.transport == Transport::kGloo) {
    return comm::make_gloo_group(
        store, rank, count, {.address = "127.0.0.1", .timeout = options.timeout, .table = table});
  }
  return comm::make_shared_memory_group(host.segment, table, rank, count,
                                        {.timeout = options.timeout, .ring = ring, .run = "host"});
}

}  // namespace

torch::Device device_of_tests() {
  const char* name = std::getenv("ZEROTH_TEST_DEVICE");
  if (name == nullptr || std::string_view(name) == "cpu") return torch::kCPU;
  device::load_gpu().select(0);
  // Bits are compared. Where it only warns, LibTorch keeps the attention that adds in any order.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return {torch::kCUDA, 0};
}

void run_ranks(int count, const std::function<void(std::shared_ptr<comm::Mesh>)>& fn,
               const RankOptions& options) {
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
        if (options.before_joining) options.before_joining(rank);
        const torch::Device device = device_of_tests();
        auto group = connect(store, rank, count, options);
        if (!device.is_cpu()) group = comm::make_host_staged_group(std::move(group));
        const auto mesh = std::make_shared<comm::Mesh>(device, std::move(group));
        if (options.grid) mesh->arrange(*options.grid);
        fn(mesh);
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
