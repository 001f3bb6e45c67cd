#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "comm/bootstrap.h"
#include "comm/device_staged_group.h"
#include "comm/find_hosts.h"
#include "comm/gloo_group.h"
#include "comm/hierarchical_group.h"
#include "comm/host_address.h"
#include "comm/host_staged_group.h"
#include "comm/join_host.h"
#include "comm/mesh.h"
#include "comm/nccl.h"
#include "comm/rendezvous.h"
#include "comm/share_segment.h"
#include "comm/shared_memory_group.h"
#include "comm/time_limit.h"
#include "comm/way_across.h"
#include "device/gpu.h"

namespace zeroth::comm {
namespace {

// By the launcher's word, or because nobody else reaches the master. Else the ranks find out.
bool told_one_host(const RankEnv& env) {
  if (env.host_id || env.local_size != env.world_size) return false;
  return env.local_size_told || env.meeting || is_loopback(env.master_addr);
}

// The ranks before they are a group.
struct Ranks {
  const RankEnv& env;
  Rendezvous met;
  HostSegment host = {};      // shared memory of all ranks, where they are on one host
  Hosts found = {};           // several; else empty
  SharingHosts sharing = {};  // of several
};

// Waits for other ranks: each for the others, and then for rank 0, which waits for all.
template <typename Join>
auto within_meeting(const RankEnv& env, const Rendezvous& met, Join join) {
  return within(2 * env.timeout + std::chrono::seconds(1),
                fmt::format("rank {} of {}: the store of the run ({}) has stopped answering",
                            env.rank, env.world_size, met.run),
                std::move(join));
}

HostSegment join_host(const RankEnv& env, const Rendezvous& met, size_t bytes) {
  if (!env.shared_memory) return {nullptr, "ZEROTH_SHARED_MEMORY=0"};
  return within_meeting(
      env, met,
      [key_store = met.key_store, run = met.run, rank = env.rank, size = env.world_size, bytes] {
        return comm::join_host(*key_store, run, rank, size, bytes);
      });
}

using RingOf = RingSize (*)(int ranks);

Ranks gather_ranks(const RankEnv& env, RingOf ring_of) {
  Ranks ranks{env, env.met && env.met->key_store ? std::move(*env.met) : meet(env)};
  if (!told_one_host(env)) {
    ranks.found = within_meeting(
        env, ranks.met,
        [key_store = ranks.met.key_store, rank = env.rank, size = env.world_size,
         card = this_machine(env.host_id)] { return find_hosts(*key_store, rank, size, card); });
  }
  if (ranks.found.size() <= 1) {
    const size_t bytes = shared_memory_group_bytes(env.world_size, ring_of(env.world_size));
    ranks.host = join_host(env, ranks.met, bytes);
    ranks.found.clear();
  } else if (!env.shared_memory) {
    ranks.sharing = share_nothing(ranks.found, "ZEROTH_SHARED_MEMORY=0");
  } else {
    ranks.sharing = within_meeting(
        env, ranks.met,
        [key_store = ranks.met.key_store, run = ranks.met.run, rank = env.rank, found = ranks.found,
         ring_of] { return share_memory(key_store, run, rank, found, ring_of); });
  }
  return ranks;
}

std::unique_ptr<Group> gloo(const Ranks& ranks) {
  GlooOptions options;
  options.timeout = ranks.env.timeout;
  options.address = is_loopback(ranks.env.master_addr) ? ranks.env.master_addr : "127.0.0.1";
  return make_gloo_group(ranks.met.key_store, ranks.env.rank, ranks.env.world_size, options);
}

Mesh::Meeting meeting_of(const Ranks& ranks) {
  const RankEnv& env = ranks.env;
  const bool several = !ranks.found.empty();
  const auto here = several ? host_of(ranks.found, env.rank).ranks.size() : 0;
  return {.key_store = ranks.met.key_store,
          .run_id = ranks.met.run,
          .local_size = several ? static_cast<int>(here) : env.world_size,
          .notes = {},
          .host = nullptr,
          .hosts = ranks.found};
}

// Over several hosts; the key store is still asked for.
std::unique_ptr<Group> over_hosts(const Ranks& ranks, Mesh::Meeting& meeting) {
  const RankEnv& env = ranks.env;
  HierarchicalOptions options{.hosts = ranks.sharing.hosts,
                              .timeout = env.timeout,
                              .ring = ranks.sharing.ring,
                              .run = ranks.met.run,
                              .address = {},
                              .interface = env.interface.value_or(""),
                              .secret = env.secret};
  if (options.interface.empty()) options.address = address_across(env);
  if (!ranks.sharing.why_not.empty())
    meeting.notes.push_back(
        "ranks of one host exchange data over TCP, which is slower than shared memory: " +
        ranks.sharing.why_not);
  const auto fewer = std::find_if(ranks.found.begin(), ranks.found.end(), [&](const Host& host) {
    return host.ranks.size() != ranks.found.front().ranks.size();
  });
  if (fewer != ranks.found.end())
    meeting.notes.push_back(fmt::format(
        "the hosts have unequally many ranks, so that all of them exchange data over TCP: {}",
        list_of(ranks.found)));
  return make_hierarchical_group(ranks.met.key_store, ranks.sharing.segment, env.rank, options);
}

// A stranger's word in the store does not decide over what data goes over the network.
void check_may_use_tcp(const Ranks& ranks) {
  if (!ranks.env.shared_memory || !ranks.met.open_to_all) return;
  throw Error(
      "rank {} of {}: the ranks of this host cannot share memory: {}; over TCP they exchange data "
      "only with ZEROTH_SECRET, a secret of the run, or with ZEROTH_SHARED_MEMORY=0, because other "
      "users can reach the store that says so",
      ranks.env.rank, ranks.env.world_size, ranks.host.why_not);
}

std::unique_ptr<Group> over_tcp(const Ranks& ranks, Mesh::Meeting& meeting) {
  check_may_use_tcp(ranks);
  if (!ranks.host.why_not.empty()) {
    meeting.notes.push_back("ranks exchange data over TCP, which is slower than shared memory: " +
                            ranks.host.why_not);
  }
  return gloo(ranks);
}

// No rank asks the store any more: rank 0's port is closed for the rest of the run.
void leave_key_store(const Rendezvous& met, Group& group, Mesh::Meeting& meeting) {
  if (met.served_by_rank_0)
    group.all_reduce(torch::zeros({1}), Reduce::kSum, "the end of the meeting").wait();
  meeting.key_store = nullptr;
}

std::unique_ptr<Group> over_shared_memory(const Ranks& ranks, const RingSize& ring) {
  const auto& segment = ranks.host.segment;
  const auto& [rank, size] = std::tie(ranks.env.rank, ranks.env.world_size);
  const auto table = std::make_shared<RankTable>(segment, rank, size);
  return make_shared_memory_group(
      segment, table, rank, size,
      {.timeout = ranks.env.timeout, .ring = ring, .run = ranks.met.run});
}

struct HostGroup {
  Mesh::Meeting meeting;
  std::unique_ptr<Group> group;  // of CPU tensors
};

HostGroup host_group(const RankEnv& env) {
  const Ranks ranks = gather_ranks(env, RingSize::for_ranks);
  HostGroup host{meeting_of(ranks), nullptr};
  if (!ranks.found.empty()) {
    host.group = over_hosts(ranks, host.meeting);
    return host;
  }
  if (!ranks.host.segment) {
    host.group = over_tcp(ranks, host.meeting);
    return host;
  }
  host.group = over_shared_memory(ranks, RingSize::for_ranks(env.world_size));
  leave_key_store(ranks.met, *host.group, host.meeting);
  return host;
}

std::unique_ptr<Mesh> cpu_mesh(const RankEnv& env) {
  if (env.world_size == 1) return std::make_unique<Mesh>(torch::kCPU, make_solo_group());
  HostGroup host = host_group(env);
  return std::make_unique<Mesh>(torch::kCPU, std::move(host.meeting), std::move(host.group));
}

// NCCL up to 2.29 refuses two ranks on one GPU.
constexpr int kNcclSharesGpus = 23000;

bool through_nccl(const RankEnv& env) {
  if (!env.share_gpus) return true;
  return env.nccl_shares_gpus && load_nccl().version() >= kNcclSharesGpus;
}

// A few numbers and words go through it: what ranks agree on.
constexpr RingSize kSmallRing{.slot_bytes = 64 << 10, .slots = 4};

std::unique_ptr<Mesh> nccl_mesh(const RankEnv& env, torch::Device device, const OnStuck& on_stuck) {
  const Ranks ranks = gather_ranks(env, [](int) { return kSmallRing; });
  Mesh::Meeting meeting = meeting_of(ranks);
  NcclOptions options{
      .timeout = env.timeout, .tables = {}, .reports = nullptr, .on_stuck = on_stuck};
  if (ranks.host.segment) {
    meeting.host = over_shared_memory(ranks, kSmallRing);
    options.tables = [host = meeting.host.get(), run = ranks.met.run](const Partition& partition) {
      return share_table(*host, partition, run);
    };
  } else if (!ranks.found.empty()) {
    meeting.host = over_hosts(ranks, meeting);
    set_nccl_interface(env);
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", ranks.met.key_store);
    options.reports = std::make_shared<HostReports>(store, env.rank, ranks.found, env.timeout);
  }
  auto world = load_nccl().make_group(ranks.met.key_store, env.rank, env.world_size, options);
  if (!meeting.host) meeting.host = make_device_staged_group(*world, device);
  return std::make_unique<Mesh>(device, std::move(meeting), std::move(world));
}

std::unique_ptr<Mesh> gpu_mesh(const RankEnv& env, torch::Device device, const OnStuck& on_stuck) {
  if (env.world_size == 1) return std::make_unique<Mesh>(device, make_solo_group());
  if (through_nccl(env)) return nccl_mesh(env, device, on_stuck);
  HostGroup host = host_group(env);
  host.meeting.notes.push_back("ranks that share a GPU exchange data through host memory");
  return std::make_unique<Mesh>(device, std::move(host.meeting),
                                make_host_staged_group(std::move(host.group)));
}

// Without a launcher's word: the GPU where the machine has one and this build can use it.
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
  throw Error("rank {}: {}", env.rank, device::no_gpu_text(gpu.driver(), text));
}

std::unique_ptr<Mesh> make_mesh(const RankEnv& env, const OnStuck& on_stuck) {
  if (device_type(env) == torch::kCPU) return cpu_mesh(env);
  device::Gpu& gpu = device::load_gpu();
  const int devices = gpu.device_count();
  if (env.local_rank >= devices && !env.share_gpus) {
    throw Error(
        "rank {}: local rank {} has no GPU of its own, {} visible (pass --share-gpus to share)",
        env.rank, env.local_rank, devices);
  }
  const int index = env.local_rank % devices;
  gpu.select(index);
  return gpu_mesh(env, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)), on_stuck);
}

}  // namespace zeroth::comm
