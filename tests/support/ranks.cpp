#include "tests/support/ranks.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/discover_nodes.h"
#include "comm/groups/gloo_group.h"
#include "comm/groups/group.h"
#include "comm/groups/group_segment.h"
#include "comm/groups/hierarchical_group.h"
#include "comm/groups/nccl.h"
#include "comm/groups/shared_memory_group.h"
#include "comm/nodes/node_segment.h"
#include "device/gpu.h"

namespace zeroth::testing {
namespace {

std::unique_ptr<comm::Group> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     int count, const RankOptions& options) {
  if (count == 1) return comm::make_solo_group();
  const auto ring = comm::RingSize::for_ranks(count);
  auto host = comm::join_node_segment(*store, "host", rank, count,
                                      comm::shared_memory_group_bytes(count, ring));
  if (!host.segment) throw Error("the ranks cannot share memory: {}", host.failure_reason);
  auto table = std::make_shared<comm::RankTable>(host.segment, rank, count);
  if (options.transport == Transport::kGloo) {
    return comm::make_gloo_group(
        store, rank, count,
        {.address = "127.0.0.1", .timeout = options.timeout, .group = {.table = table}});
  }
  return comm::make_shared_memory_group(host.segment, table, rank, count,
                                        {.timeout = options.timeout, .ring = ring, .run = "host"});
}

std::vector<std::string> hosts_of(int count, const RankOptions& options) {
  const char* text = std::getenv("ZEROTH_TEST_HOSTS");
  if (!options.nodes.empty() || text == nullptr) return options.nodes;
  const int machines = std::atoi(text);
  const bool fits = machines > 0 && count >= machines && count % machines == 0;
  if (!fits || options.transport != Transport::kSharedMemory) return {};
  return on_machines(count, machines);
}

struct Joined {
  comm::Nodes nodes = {};
  std::unique_ptr<comm::Group> host = nullptr;  // where the world takes no tensors of the CPU
  std::unique_ptr<comm::Group> world = nullptr;
};

Joined connect_hosts(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                     const std::vector<std::string>& names, const RankOptions& options) {
  const auto count = static_cast<int>(names.size());
  Joined joined;
  joined.nodes = comm::discover_nodes(*store, rank, count,
                                      comm::local_node_identity(names[static_cast<size_t>(rank)]));
  const auto node_memory =
      comm::share_node_memory(store, "host", rank, joined.nodes, comm::RingSize::for_ranks);
  if (!node_memory.failure_reason.empty())
    throw Error("the ranks cannot share memory: {}", node_memory.failure_reason);
  joined.world = comm::make_hierarchical_group(store, node_memory.segment, rank,
                                               {.nodes = node_memory.nodes,
                                                .timeout = options.timeout,
                                                .ring = node_memory.ring,
                                                .run = "host",
                                                .address = "127.0.0.1",
                                                .interface = {}});
  return joined;
}

Joined connect_gpus(const c10::intrusive_ptr<c10d::Store>& store, int rank, int count,
                    const RankOptions& options) {
  Joined joined;
  joined.host = connect(store, rank, count, options);
  const auto tables = [host = joined.host.get()](const comm::Partition& partition) {
    return comm::make_group_table(*host, partition, "host");
  };
  joined.world = comm::load_nccl().make_group(store, rank, count,
                                              {.timeout = options.timeout, .tables = tables});
  return joined;
}

Joined join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int count,
            const RankOptions& options, torch::Device device) {
  if (options.transport == Transport::kNccl) return connect_gpus(store, rank, count, options);
  const auto names = hosts_of(count, options);
  Joined joined;
  if (names.empty()) {
    joined.world = connect(store, rank, count, options);
  } else {
    joined = connect_hosts(store, rank, names, options);
  }
  if (!device.is_cpu()) joined.world = comm::make_cpu_staged_group(std::move(joined.world));
  return joined;
}

torch::Device select_gpu(int rank) {
  const int index = rank % device::load_gpu().device_count();
  device::load_gpu().select(index);
  // Bits are compared. Where it only warns, LibTorch keeps the attention that adds in any order.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

bool on_gpus() {
  const char* name = std::getenv("ZEROTH_TEST_DEVICE");
  return name != nullptr && std::string_view(name) != "cpu";
}

torch::Device device_of(int rank, const RankOptions& options) {
  if (options.transport == Transport::kNccl) return select_gpu(rank);
  const bool on_cpu = options.grid && !can_compute_on_gpus(*options.grid);
  return on_cpu ? torch::kCPU : device_of_tests(rank);
}

}  // namespace

int gpu_count_of_tests() {
  return on_gpus() ? device::load_gpu().device_count() : 0;
}

torch::Device device_of_tests(int rank) {
  return on_gpus() ? select_gpu(rank) : torch::kCPU;
}

bool can_compute_on_gpus(const comm::MeshShape& grid) {
  return grid[comm::MeshDim::kTp] == 1 || gpu_count_of_tests() >= grid.ranks();
}

std::vector<std::string> on_machines(int count, int machines) {
  std::vector<std::string> names;
  for (int rank = 0; rank < count && machines > 1; ++rank)
    names.push_back("host" + std::to_string(rank / (count / machines)));
  return names;
}

void renew_thread_pool() {
  at::set_num_threads(at::get_num_threads());
}

void run_ranks(int count, const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& fn,
               const RankOptions& options) {
  // c10d's flight recorder is one per process and not safe with several ranks in it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  renew_thread_pool();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        if (options.before_joining) options.before_joining(rank);
        const torch::Device device = device_of(rank, options);
        Joined joined = join(store, rank, count, options, device);
        comm::DeviceMesh::BootstrapInfo info;
        info.cpu_group = std::move(joined.host);
        info.nodes = joined.nodes;
        const auto mesh =
            std::make_shared<comm::DeviceMesh>(device, std::move(info), std::move(joined.world));
        if (options.grid) mesh->set_shape(*options.grid);
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
