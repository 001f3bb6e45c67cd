#include "comm/mesh.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>

#include "base/error.h"
#include "comm/bootstrap.h"
#include "comm/gloo_group.h"
#include "comm/gpu.h"

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
    const std::string reason = cause.what();
    throw Error("rank {} of {}: cannot reach the store at {}:{}: {}", env.rank, env.world_size,
                env.master_addr, env.master_port, reason.substr(0, reason.find('\n')));
  }
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

std::unique_ptr<Group> gloo(const RankEnv& env) {
  GlooOptions options;
  options.timeout = env.timeout;
  if (is_loopback(env.master_addr)) options.address = env.master_addr;
  return make_gloo_group(connect_store(env), env.rank, env.world_size, options);
}

std::unique_ptr<Mesh> cpu_mesh(const RankEnv& env) {
  auto group = env.world_size == 1 ? make_solo_group() : gloo(env);
  return std::make_unique<Mesh>(torch::kCPU, std::move(group));
}

// Without a launcher's word: the GPU where the machine has one and this build can use it.
bool use_cpu(const RankEnv& env) {
  if (env.accelerator) return *env.accelerator == "cpu";
  return !std::filesystem::exists("/dev/nvidiactl") || !gpu_library();
}

}  // namespace

void barrier(const Mesh& mesh) {
  const torch::Tensor nothing = torch::zeros({1}, mesh.device());
  mesh.data().all_reduce(nothing).wait();
  nothing.item<float>();  // on a GPU only this waits for the result
}

void load_device(const RankEnv& env) {
  if (!use_cpu(env)) load_gpu();
}

std::unique_ptr<Mesh> make_mesh(const RankEnv& env) {
  if (use_cpu(env)) return cpu_mesh(env);
  Gpu& gpu = load_gpu();
  const int devices = gpu.device_count();
  if (devices == 0 && !env.accelerator) return cpu_mesh(env);
  if (devices == 0) throw Error("rank {}: DS_ACCELERATOR=cuda, but no GPU is visible", env.rank);
  if (env.local_rank >= devices && !env.share_gpus) {
    throw Error(
        "rank {}: local rank {} has no GPU of its own, {} visible (pass --share-gpus to share)",
        env.rank, env.local_rank, devices);
  }
  const int index = env.local_rank % devices;
  gpu.select(index);
  auto group = env.world_size == 1 ? make_solo_group()
               : env.share_gpus
                   ? gloo(env)
                   : gpu.make_nccl_group(connect_store(env), env.rank, env.world_size, env.timeout);
  return std::make_unique<Mesh>(torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)),
                                std::move(group));
}

}  // namespace zeroth::comm
