#include "comm/mesh.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "comm/bootstrap.h"
#include "comm/comm_log.h"
#include "comm/device_staged_group.h"
#include "comm/gloo_group.h"
#include "comm/host_staged_group.h"
#include "comm/join_host.h"
#include "comm/nccl.h"
#include "comm/rendezvous.h"
#include "comm/share_segment.h"
#include "comm/shared_memory_group.h"
#include "comm/time_limit.h"
#include "device/gpu.h"

namespace zeroth::comm {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

bool on_one_host(const RankEnv& env) {
  return env.local_size == env.world_size;
}

// The ranks before they are a group.
struct Ranks {
  const RankEnv& env;
  Rendezvous met;
  HostSegment host;  // shared memory of all ranks, where they are on one host
};

// Each rank waits for the others, and then for rank 0, which waits for all.
HostSegment join_host(const RankEnv& env, const Rendezvous& met, size_t bytes) {
  if (!env.shared_memory) return {nullptr, "ZEROTH_SHARED_MEMORY=0"};
  const auto join = [key_store = met.key_store, run = met.run, rank = env.rank,
                     size = env.world_size,
                     bytes] { return comm::join_host(*key_store, run, rank, size, bytes); };
  return within(2 * env.timeout + std::chrono::seconds(1),
                fmt::format("rank {} of {}: the store of the run ({}) has stopped answering",
                            env.rank, env.world_size, met.run),
                join);
}

Ranks gather_ranks(const RankEnv& env, size_t bytes) {
  Ranks ranks{env, meet(env), {}};
  if (on_one_host(env)) ranks.host = join_host(env, ranks.met, bytes);
  return ranks;
}

std::unique_ptr<Group> gloo(const Ranks& ranks) {
  GlooOptions options;
  options.timeout = ranks.env.timeout;
  const bool loopback = is_loopback(ranks.env.master_addr);
  if (loopback || on_one_host(ranks.env))
    options.address = loopback ? ranks.env.master_addr : "127.0.0.1";
  return make_gloo_group(ranks.met.key_store, ranks.env.rank, ranks.env.world_size, options);
}

Mesh::Meeting meeting_of(const RankEnv& env, const Rendezvous& met) {
  return {.key_store = met.key_store,
          .run_id = met.run,
          .local_size = env.local_size,
          .notes = {},
          .host = nullptr};
}

// A stranger's word in the store does not decide over what data goes over the network.
void check_may_use_tcp(const Ranks& ranks) {
  if (!on_one_host(ranks.env) || !ranks.env.shared_memory || !ranks.met.open_to_all) return;
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
  const RingSize ring = RingSize::for_ranks(env.world_size);
  const Ranks ranks = gather_ranks(env, shared_memory_group_bytes(env.world_size, ring));
  HostGroup host{meeting_of(env, ranks.met), nullptr};
  if (!ranks.host.segment) {
    host.group = over_tcp(ranks, host.meeting);
    return host;
  }
  host.group = over_shared_memory(ranks, ring);
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
  const Ranks ranks = gather_ranks(env, shared_memory_group_bytes(env.world_size, kSmallRing));
  Mesh::Meeting meeting = meeting_of(env, ranks.met);
  NcclOptions options{.timeout = env.timeout, .tables = {}, .on_stuck = on_stuck};
  if (ranks.host.segment) {
    meeting.host = over_shared_memory(ranks, kSmallRing);
    options.tables = [host = meeting.host.get(), run = ranks.met.run](const Partition& partition) {
      return share_table(*host, partition, run);
    };
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

Mesh::Mesh(torch::Device device, std::unique_ptr<Group> world)
    : Mesh(device, Meeting{}, std::move(world)) {}

Mesh::Mesh(torch::Device device, Meeting meeting, std::unique_ptr<Group> world)
    : device_(device),
      meeting_(std::make_unique<Meeting>(std::move(meeting))),
      world_(std::move(world)),
      grid_(GridShape::data(world_->size())) {}

Mesh::~Mesh() = default;

void Mesh::arrange(const GridShape& shape) {
  if (shape == grid_.shape()) return;
  ZEROTH_CHECK(parts_.empty() && sharing_.empty(), "{} groups were asked for already",
               parts_.size() + sharing_.size());
  if (shape.ranks() != world_size())
    throw Error("a grid of {} has {} ranks, the world {}", shape.str(), shape.ranks(),
                world_size());
  grid_ = RankGrid(shape);
}

Group& Mesh::group(Axes axes) const {
  const int ranks = grid_.shape().ranks_along(axes);
  if (ranks == world_size()) return *world_;
  const auto known = parts_.find(axes);
  if (known != parts_.end()) return *known->second;
  auto part = ranks == 1 ? make_solo_group() : world_->split(grid_.along(axes));
  return *parts_.emplace(axes, std::move(part)).first->second;
}

Group& Mesh::sharing(int copies) const {
  if (copies == 1) return data();
  if (copies == grid_.shape()[Axis::kTensor]) return group({Axis::kData, Axis::kTensor});
  return part(grid_.sharing(copies));
}

Group& Mesh::sharing_near(int copies, int data_ranks) const {
  return part(grid_.sharing_near(copies, data_ranks));
}

Group& Mesh::sharing_across(int copies, int data_ranks) const {
  return part(grid_.sharing_across(copies, data_ranks));
}

Group& Mesh::part(const Partition& partition) const {
  const auto known = sharing_.find(partition.name);
  if (known != sharing_.end()) return *known->second;
  return *sharing_.emplace(partition.name, world_->split(partition)).first->second;
}

CommTimes Mesh::times() const {
  CommTimes sum;
  for (const auto& [name, times] : times_by_group()) sum += times;
  return sum;
}

std::map<std::string, CommTimes> Mesh::times_by_group() const {
  std::map<std::string, CommTimes> times = {{"world", world_->times()}};
  for (const auto& [axes, part] : parts_) times[grid_.name_of(axes)] = part->times();
  for (const auto& [name, part] : sharing_) times[name] = part->times();
  return times;
}

void Mesh::log_collectives(const configs::CommsLoggerConfig& config) {
  if (log_) return;
  log_ = std::make_unique<CommLog>(config);
  world_ = make_logged_group(std::move(world_), *log_);
  for (auto& [axes, part] : parts_) part = make_logged_group(std::move(part), *log_);
  for (auto& [copies, part] : sharing_) part = make_logged_group(std::move(part), *log_);
}

void load_device(const RankEnv& env) {
  if (!use_cpu(env)) device::load_gpu();
}

torch::DeviceType device_type(const RankEnv& env) {
  const bool on_cpu = use_cpu(env) || (!env.accelerator && device::load_gpu().device_count() == 0);
  return on_cpu ? torch::kCPU : torch::kCUDA;
}

std::unique_ptr<Mesh> make_mesh(const RankEnv& env, const OnStuck& on_stuck) {
  if (device_type(env) == torch::kCPU) return cpu_mesh(env);
  device::Gpu& gpu = device::load_gpu();
  const int devices = gpu.device_count();
  if (devices == 0) throw Error("rank {}: DS_ACCELERATOR=cuda, but no GPU is visible", env.rank);
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
