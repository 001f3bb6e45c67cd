#include "comm/mesh.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>

#include "base/error.h"
#include "comm/bootstrap.h"
#include "comm/call.h"
#include "comm/gloo_group.h"
#include "comm/gpu.h"
#include "comm/host_staged_group.h"
#include "comm/join_host.h"
#include "comm/logged_group.h"
#include "comm/shared_memory_group.h"

namespace zeroth::comm {
namespace {

c10::intrusive_ptr<c10d::Store> connect_store(const RankEnv& env) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !env.agent_store;
  options.waitWorkers = false;
  options.timeout = env.timeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
    return c10::make_intrusive<c10d::PrefixStore>("zeroth", store);
  } catch (const std::exception& cause) {
    throw Error("rank {} of {}: cannot reach the store at {}:{}: {}", env.rank, env.world_size,
                env.master_addr, env.master_port, first_line(cause));
  }
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

// The ranks before they are a group.
struct Ranks {
  const RankEnv& env;
  c10::intrusive_ptr<c10d::Store> store;
  HostSegment host;  // shared memory of all ranks, where they are on one host
  std::shared_ptr<RankTable> table;
};

Ranks meet(const RankEnv& env, size_t bytes) {
  Ranks ranks{env, connect_store(env), {}, nullptr};
  if (env.local_size != env.world_size) return ranks;
  ranks.host = join_host(*ranks.store, "host", env.rank, env.world_size, bytes);
  if (ranks.host.segment) {
    ranks.table = std::make_shared<RankTable>(ranks.host.segment, env.rank, env.world_size);
  }
  return ranks;
}

std::unique_ptr<Group> gloo(const Ranks& ranks) {
  GlooOptions options;
  options.timeout = ranks.env.timeout;
  options.table = ranks.table;
  if (is_loopback(ranks.env.master_addr)) options.address = ranks.env.master_addr;
  return make_gloo_group(ranks.store, ranks.env.rank, ranks.env.world_size, options);
}

Mesh::Meeting meeting_of(const RankEnv& env) {
  Mesh::Meeting meeting;
  meeting.run_id = fmt::format("{}-{}", env.master_addr, env.master_port);
  meeting.local_size = env.local_size;
  return meeting;
}

// A group of CPU tensors, and what the user should know about it.
std::unique_ptr<Group> host_group(const RankEnv& env, Mesh::Meeting& meeting) {
  const RingSize ring = RingSize::for_ranks(env.world_size);
  const Ranks ranks = meet(env, shared_memory_group_bytes(env.world_size, ring));
  meeting.store = ranks.store;
  if (ranks.host.segment) {
    return make_shared_memory_group(ranks.host.segment, ranks.table, env.rank, env.world_size,
                                    {.timeout = env.timeout, .ring = ring});
  }
  if (!ranks.host.why_not.empty()) {
    meeting.notes.push_back("ranks exchange data over TCP, which is slower than shared memory: " +
                            ranks.host.why_not);
  }
  return gloo(ranks);
}

std::unique_ptr<Mesh> cpu_mesh(const RankEnv& env) {
  if (env.world_size == 1) return std::make_unique<Mesh>(torch::kCPU, make_solo_group());
  Mesh::Meeting meeting = meeting_of(env);
  auto group = host_group(env, meeting);
  return std::make_unique<Mesh>(torch::kCPU, std::move(meeting), std::move(group));
}

// NCCL up to 2.29 refuses two ranks on one GPU.
constexpr int kNcclSharesGpus = 23000;

bool through_nccl(const RankEnv& env, const Gpu& gpu) {
  if (!env.share_gpus) return true;
  return env.nccl_shares_gpus && gpu.nccl_version() >= kNcclSharesGpus;
}

std::unique_ptr<Mesh> gpu_mesh(const RankEnv& env, torch::Device device, Gpu& gpu,
                               const OnStuck& on_stuck) {
  if (env.world_size == 1) return std::make_unique<Mesh>(device, make_solo_group());
  Mesh::Meeting meeting = meeting_of(env);
  std::unique_ptr<Group> group;
  if (through_nccl(env, gpu)) {
    const Ranks ranks = meet(env, RankTable::bytes(env.world_size));
    meeting.store = ranks.store;
    group =
        gpu.make_nccl_group(ranks.store, env.rank, env.world_size,
                            {.timeout = env.timeout, .table = ranks.table, .on_stuck = on_stuck});
  } else {
    group = make_host_staged_group(host_group(env, meeting));
    meeting.notes.push_back("ranks that share a GPU exchange data through host memory");
  }
  return std::make_unique<Mesh>(device, std::move(meeting), std::move(group));
}

// Without a launcher's word: the GPU where the machine has one and this build can use it.
bool use_cpu(const RankEnv& env) {
  if (env.accelerator) return *env.accelerator == "cpu";
  return !std::filesystem::exists("/dev/nvidiactl") || !gpu_library();
}

}  // namespace

Mesh::Mesh(torch::Device device, std::unique_ptr<Group> data)
    : Mesh(device, Meeting{}, std::move(data)) {}

Mesh::Mesh(torch::Device device, Meeting meeting, std::unique_ptr<Group> data)
    : device_(device),
      meeting_(std::make_unique<Meeting>(std::move(meeting))),
      data_(std::move(data)) {}

Mesh::~Mesh() = default;

void Mesh::log_collectives(const configs::CommsLoggerConfig& config) {
  if (log_) return;
  log_ = std::make_unique<CommLog>(world_size(), config);
  data_ = make_logged_group(std::move(data_), *log_);
}

void barrier(const Mesh& mesh) {
  const torch::Tensor nothing = torch::zeros({1}, mesh.device());
  mesh.data().all_reduce(nothing, Reduce::kSum, kBarrier).wait();
  nothing.item<float>();  // on a GPU only this waits for the result
}

void load_device(const RankEnv& env) {
  if (!use_cpu(env)) load_gpu();
}

torch::DeviceType device_type(const RankEnv& env) {
  const bool on_cpu = use_cpu(env) || (!env.accelerator && load_gpu().device_count() == 0);
  return on_cpu ? torch::kCPU : torch::kCUDA;
}

std::unique_ptr<Mesh> make_mesh(const RankEnv& env, const OnStuck& on_stuck) {
  if (device_type(env) == torch::kCPU) return cpu_mesh(env);
  Gpu& gpu = load_gpu();
  const int devices = gpu.device_count();
  if (devices == 0) throw Error("rank {}: DS_ACCELERATOR=cuda, but no GPU is visible", env.rank);
  if (env.local_rank >= devices && !env.share_gpus) {
    throw Error(
        "rank {}: local rank {} has no GPU of its own, {} visible (pass --share-gpus to share)",
        env.rank, env.local_rank, devices);
  }
  const int index = env.local_rank % devices;
  gpu.select(index);
  return gpu_mesh(env, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)), gpu,
                  on_stuck);
}

}  // namespace zeroth::comm
