#include <filesystem>
#include <fstream>
#include <iterator>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/rank_bootstrap.h"
#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"
#include "comm/discover_nodes.h"
#include "comm/groups/gloo_group.h"
#include "comm/groups/group.h"
#include "comm/groups/group_segment.h"
#include "comm/groups/hierarchical_group.h"
#include "comm/groups/nccl.h"
#include "comm/groups/shared_memory_group.h"
#include "comm/nodes/node_segment.h"
#include "comm/time_limit.h"
#include "device/gpu.h"

namespace zeroth::comm {
namespace {

// Returns whether all ranks are on one node, because the launcher says so or because no other node
// reaches the master. Otherwise the ranks discover it.
bool is_single_node(const RankEnv& env) {
  if (env.host_id || env.local_size != env.world_size) return false;
  return env.has_local_size || env.bootstrap_ticket || is_loopback(env.master_addr);
}

// State of the ranks before they form a group.
struct BootstrappedRanks {
  const RankEnv& env;
  RankBootstrap bootstrap;
  NodeSegment node_segment = {};  // shared memory of all ranks, if they are on one node
  Nodes nodes = {};               // the nodes, if several; else empty
  NodeMemory node_memory = {};    // memory of several nodes
};

// Runs `join`, which waits for other ranks: each for the others, and then for rank 0, which waits
// for all.
template <typename Join>
auto within_bootstrap(const RankEnv& env, const RankBootstrap& bootstrap, Join join) {
  return run_with_timeout(
      2 * env.timeout + std::chrono::seconds(1),
      fmt::format("rank {} of {}: the store of the run ({}) has stopped answering", env.rank,
                  env.world_size, bootstrap.run),
      std::move(join));
}

BootstrappedRanks bootstrap_run(const RankEnv& env, RingSize (*ring_size)(int ranks)) {
  constexpr const char* kNotShared = "ZEROTH_SHARED_MEMORY=0";
  BootstrappedRanks ranks{env, env.bootstrap && env.bootstrap->store ? std::move(*env.bootstrap)
                                                                     : bootstrap_ranks(env)};
  // Copies, because a thread that has exceeded its time limit still uses them.
  const auto store = ranks.bootstrap.store;
  const std::string run = ranks.bootstrap.run;
  const int rank = env.rank, size = env.world_size;
  if (!is_single_node(env)) {
    ranks.nodes =
        within_bootstrap(env, ranks.bootstrap, [=, identity = local_node_identity(env.host_id)] {
          return discover_nodes(*store, rank, size, identity);
        });
  }
  const bool is_one_node = ranks.nodes.size() <= 1;
  if (is_one_node) ranks.nodes.clear();
  if (is_one_node && !env.shared_memory) {
    ranks.node_segment.failure_reason = kNotShared;
  } else if (is_one_node) {
    const size_t bytes = shared_memory_group_bytes(size, ring_size(size));
    ranks.node_segment = within_bootstrap(
        env, ranks.bootstrap, [=] { return join_node_segment(*store, run, rank, size, bytes); });
  } else if (!env.shared_memory) {
    ranks.node_memory = share_no_memory(ranks.nodes, kNotShared);
  } else {
    ranks.node_memory = within_bootstrap(env, ranks.bootstrap, [=, nodes = ranks.nodes] {
      return share_node_memory(store, run, rank, nodes, ring_size);
    });
  }
  return ranks;
}

DeviceMesh::BootstrapInfo bootstrap_info(const BootstrappedRanks& ranks) {
  return {.store = ranks.bootstrap.store,
          .run_id = ranks.bootstrap.run,
          .notes = {},
          .cpu_group = nullptr,
          .nodes = ranks.nodes};
}

// Makes the group over several nodes, which keeps using the key-value store.
std::unique_ptr<Group> over_nodes(const BootstrappedRanks& ranks, DeviceMesh::BootstrapInfo& info) {
  const RankEnv& env = ranks.env;
  HierarchicalOptions options{.nodes = ranks.node_memory.nodes,
                              .timeout = env.timeout,
                              .ring = ranks.node_memory.ring,
                              .run = ranks.bootstrap.run,
                              .address = {},
                              .interface = env.interface.value_or(""),
                              .secret = env.secret};
  if (options.interface.empty()) options.address = inter_node_address(env);
  if (!ranks.node_memory.failure_reason.empty())
    info.notes.push_back(
        "ranks of one host exchange data over TCP, which is slower than shared memory: " +
        ranks.node_memory.failure_reason);
  const auto [fewest, greatest] = min_max_ranks(ranks.nodes);
  if (fewest != greatest)
    info.notes.push_back(fmt::format(
        "the hosts have different numbers of ranks, so all ranks exchange data over TCP: {}",
        describe_nodes(ranks.nodes)));
  return make_hierarchical_group(ranks.bootstrap.store, ranks.node_memory.segment, env.rank,
                                 options);
}

std::unique_ptr<Group> over_tcp(const BootstrappedRanks& ranks, DeviceMesh::BootstrapInfo& info) {
  const RankEnv& env = ranks.env;
  // A stranger's value in the store must not make data go over the network.
  if (env.shared_memory && ranks.bootstrap.open_to_all)
    throw Error(
        "rank {} of {}: the ranks of this host cannot share memory: {}; over TCP ranks need "
        "ZEROTH_SECRET, a secret of the run, or ZEROTH_SHARED_MEMORY=0, because other users can "
        "reach the store that reports this",
        env.rank, env.world_size, ranks.node_segment.failure_reason);
  if (!ranks.node_segment.failure_reason.empty()) {
    info.notes.push_back("ranks exchange data over TCP, which is slower than shared memory: " +
                         ranks.node_segment.failure_reason);
  }
  GlooOptions options;
  options.timeout = env.timeout;
  options.address = is_loopback(env.master_addr) ? env.master_addr : "127.0.0.1";
  return make_gloo_group(ranks.bootstrap.store, env.rank, env.world_size, options);
}

std::unique_ptr<Group> over_shared_memory(const BootstrappedRanks& ranks, const RingSize& ring) {
  const auto& segment = ranks.node_segment.segment;
  const auto& [rank, size] = std::tie(ranks.env.rank, ranks.env.world_size);
  const auto table = std::make_shared<RankTable>(segment, rank, size);
  return make_shared_memory_group(
      segment, table, rank, size,
      {.timeout = ranks.env.timeout, .ring = ring, .run = ranks.bootstrap.run});
}

// Makes the group of all ranks for CPU tensors.
std::unique_ptr<Group> make_cpu_group(const BootstrappedRanks& ranks,
                                      DeviceMesh::BootstrapInfo& info) {
  if (!ranks.nodes.empty()) return over_nodes(ranks, info);
  if (!ranks.node_segment.segment) return over_tcp(ranks, info);
  auto group = over_shared_memory(ranks, RingSize::for_ranks(ranks.env.world_size));
  // No rank uses the store any more: rank 0's port is closed for the rest of the run.
  if (ranks.bootstrap.served_by_rank_0)
    group->all_reduce(torch::zeros({1}), ReduceOp::kSum, "the end of bootstrap").wait();
  info.store = nullptr;
  return group;
}

// NCCL up to 2.29 refuses two ranks on one GPU.
constexpr int kNcclSharesGpus = 23000;

bool uses_nccl(const RankEnv& env) {
  if (!env.share_gpus) return true;
  return env.nccl_shares_gpus && load_nccl().version() >= kNcclSharesGpus;
}

// This ring is small, as it only carries the few numbers and strings that ranks agree on.
constexpr RingSize kSmallRing{.slot_bytes = 64 << 10, .slots = 4};

std::unique_ptr<DeviceMesh> nccl_mesh(const RankEnv& env, torch::Device device,
                                      const HangHandler& on_hang) {
  const BootstrappedRanks ranks = bootstrap_run(env, [](int) { return kSmallRing; });
  DeviceMesh::BootstrapInfo info = bootstrap_info(ranks);
  NcclOptions options{.timeout = env.timeout, .tables = {}, .reports = nullptr, .on_hang = on_hang};
  if (ranks.node_segment.segment) {
    info.cpu_group = over_shared_memory(ranks, kSmallRing);
    options.tables = [cpu_group = info.cpu_group.get(),
                      run = ranks.bootstrap.run](const Partition& partition) {
      return make_group_table(*cpu_group, partition, run);
    };
  } else if (!ranks.nodes.empty()) {
    info.cpu_group = over_nodes(ranks, info);
    set_nccl_interface(env);
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", ranks.bootstrap.store);
    options.reports = std::make_shared<PeerReports>(store, env.rank, ranks.nodes, env.timeout);
  }
  auto world = load_nccl().make_group(ranks.bootstrap.store, env.rank, env.world_size, options);
  if (!info.cpu_group) info.cpu_group = make_device_staged_group(*world, device);
  return std::make_unique<DeviceMesh>(device, std::move(info), std::move(world));
}

std::unique_ptr<DeviceMesh> connect_mesh(const RankEnv& env, torch::Device device,
                                         const HangHandler& on_hang) {
  if (env.world_size == 1) return std::make_unique<DeviceMesh>(device, make_solo_group());
  if (!device.is_cpu() && uses_nccl(env)) return nccl_mesh(env, device, on_hang);
  const BootstrappedRanks ranks = bootstrap_run(env, RingSize::for_ranks);
  DeviceMesh::BootstrapInfo info = bootstrap_info(ranks);
  std::unique_ptr<Group> group = make_cpu_group(ranks, info);
  if (!device.is_cpu()) {
    info.notes.push_back("ranks that share a GPU exchange data through host memory");
    group = make_cpu_staged_group(std::move(group));
  }
  return std::make_unique<DeviceMesh>(device, std::move(info), std::move(group));
}

// Returns whether to use the CPU. Without a launcher's setting: the GPU if the node has one and
// this build can use it.
bool use_cpu(const RankEnv& env) {
  if (env.accelerator) return *env.accelerator == "cpu";
  return !std::filesystem::exists("/dev/nvidiactl") || !device::gpu_library();
}

}  // namespace

void load_device(const RankEnv& env) {
  if (!use_cpu(env)) device::load_gpu();
}

torch::DeviceType device_type(const RankEnv& env) {
  return use_cpu(env) ? torch::kCPU : device_type(env, device::load_gpu());
}

torch::DeviceType device_type(const RankEnv& env, const device::Gpu& gpu) {
  if (gpu.device_count() > 0) return torch::kCUDA;
  if (env.hides_gpus) {
    if (!env.accelerator) return torch::kCPU;
    throw Error("rank {}: DS_ACCELERATOR=cuda, but no GPU is visible (see CUDA_VISIBLE_DEVICES)",
                env.rank);
  }
  std::ifstream module("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(module), {}};
  throw Error("rank {}: {}", env.rank, device::no_gpu_message(gpu.driver(), text));
}

std::unique_ptr<DeviceMesh> make_mesh(const RankEnv& env, const HangHandler& on_hang) {
  if (device_type(env) == torch::kCPU) return connect_mesh(env, torch::kCPU, on_hang);
  device::Gpu& gpu = device::load_gpu();
  const int devices = gpu.device_count();
  if (env.local_rank >= devices && !env.share_gpus) {
    throw Error(
        "rank {}: local rank {} has no GPU of its own, {} visible (pass --share-gpus to share)",
        env.rank, env.local_rank, devices);
  }
  const int index = env.local_rank % devices;
  gpu.select(index);
  return connect_mesh(env, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)),
                      on_hang);
}

}  // namespace zeroth::comm
