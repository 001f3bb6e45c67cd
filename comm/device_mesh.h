// The ranks of a run: who I am, on which device, where I stand among the others and which groups
// we form.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm_log.h"
#include "comm/group.h"
#include "comm/mesh_layout.h"
#include "comm/nodes.h"
#include "comm/watchdog.h"

namespace c10d {
class Store;
}

namespace zeroth::device {
class Gpu;
}

namespace zeroth::comm {

class DeviceMesh {
 public:
  DeviceMesh(torch::Device device, std::unique_ptr<Group> world);

  // How the ranks met: `store` lives as long as the mesh, because rank 0 may serve it to the
  // others.
  struct BootstrapInfo {
    c10::intrusive_ptr<c10d::Store> store;
    std::string run_id = "1";  // the same on all ranks
    int local_size = 0;        // ranks of this machine; 0: all are
    std::vector<std::string> notes;
    // All ranks, for tensors of the CPU, where `world` takes only those of the device.
    std::unique_ptr<Group> cpu_group;
    Nodes nodes = {};  // empty: all ranks are on this one
  };
  DeviceMesh(torch::Device device, BootstrapInfo info, std::unique_ptr<Group> world);
  ~DeviceMesh();

  torch::Device device() const { return device_; }
  // All ranks.
  Group& world() const { return *world_; }
  int rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  // All ranks, for tensors of the CPU: where these share memory, no device is waited for.
  Group& cpu_group() const { return info_->cpu_group ? *info_->cpu_group : *world_; }

  // Gives the ranks their places; without it they are all on axis data. The same on all ranks, and
  // before group() is asked for any. Throws an Error unless the shape has as many ranks as the
  // world. Adds a note where ranks that share layers are on several machines.
  void set_shape(const MeshShape& shape);
  const MeshLayout& layout() const { return layout_; }
  int coordinate(MeshDim dim) const { return layout_.coordinate(rank(), dim); }
  // The ranks that differ from this one on these axes alone. Collective when it is first asked for
  // these axes, over all ranks.
  Group& group(MeshDims dims) const;
  // Ranks that see different samples.
  Group& dp_group() const { return group({MeshDim::kDp}); }
  // Ranks that hold the same parameters, over which these, gradients and optimizer state shard
  // (MeshLayout::shard_group). Collective as group().
  Group& shard_group(int num_replicas) const;
  // Of these the ones near this rank, and those that stand where it does further off
  // (MeshLayout::secondary_shard_group, secondary_replica_group). Collective as group().
  Group& secondary_shard_group(int num_replicas, int dp_ranks) const;
  Group& secondary_replica_group(int num_replicas, int dp_ranks) const;
  // Of all groups together but a cpu_group() of its own, which no device waits for.
  CommTimes times() const;
  // The same of each group that was asked for, by its name: "world", "tensor", "data x tensor".
  std::map<std::string, CommTimes> times_by_group() const;
  // The machines of the run, and who is where.
  const Nodes& nodes() const { return info_->nodes; }
  // Ranks of this machine, this one included.
  int local_size() const { return info_->local_size > 0 ? info_->local_size : world_size(); }
  // From now on collectives are written down, and none of them overlaps with compute. To be called
  // before anything keeps a reference to a group; a second call changes nothing.
  void log_collectives(const configs::CommsLoggerConfig& config);
  CommLog* comm_log() const { return log_.get(); }  // null unless collectives are written down
  // Names the run among those of this machine.
  const std::string& run_id() const { return info_->run_id; }
  // What the user should know about the connections, one line each.
  const std::vector<std::string>& notes() const { return info_->notes; }

 private:
  Group& part(const Partition& partition) const;

  torch::Device device_;
  // What is made later refers to what is made before it.
  std::unique_ptr<BootstrapInfo> info_;
  std::unique_ptr<CommLog> log_;
  std::unique_ptr<Group> world_;
  MeshLayout layout_;
  // Parts of the world that were asked for.
  mutable std::map<MeshDims, std::unique_ptr<Group>> parts_;
  mutable std::map<std::string, std::unique_ptr<Group>>
      shard_groups_;  // that no axes make up, by name
};

struct RankEnv;

// Loads the GPU library where make_mesh will want it. For programs that use torch before they
// connect: to be called first.
void load_device(const RankEnv& env);

// What make_mesh will compute on: kCPU or kCUDA. To be called as load_device. Throws an Error where
// a machine has a driver whose GPUs cannot be used, and neither the launcher nor
// CUDA_VISIBLE_DEVICES asks for the CPU.
torch::DeviceType device_type(const RankEnv& env);
// The same on a machine with this GPU library and a driver.
torch::DeviceType device_type(const RankEnv& env, const device::Gpu& gpu);

// Connects the ranks. Throws an Error that names rank, address and port when that does not succeed
// in time. `on_hang`: how to leave when a GPU waits longer than env.timeout for other ranks,
// called on another thread; by default the process is terminated with the message.
std::unique_ptr<DeviceMesh> make_mesh(const RankEnv& env, const HangHandler& on_hang = {});

}  // namespace zeroth::comm
