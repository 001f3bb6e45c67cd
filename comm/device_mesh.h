// The ranks of a run: this rank's device, its place in the mesh, the groups of ranks and the
// bandwidth between them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/groups/group.h"
#include "comm/mesh_layout.h"
#include "comm/nodes/nodes.h"
#include "device/tensor.h"

namespace c10d {
class Store;
}

namespace zeroth::device {
class Gpu;
}

namespace zeroth::configs {
struct CommsLoggerConfig;
}

namespace zeroth::comm {

class CommLog;

class DeviceMesh {
 public:
  DeviceMesh(torch::Device device, std::unique_ptr<Group> world);

  // Result of the bootstrap. `store` lives as long as the mesh, because rank 0 may serve it to the
  // other ranks.
  struct BootstrapInfo {
    c10::intrusive_ptr<c10d::Store> store;
    std::string run_id = "1";  // identical on all ranks
    std::vector<std::string> notes;
    // Group of all ranks for CPU tensors; set if `world` accepts only device tensors.
    std::unique_ptr<Group> cpu_group;
    Nodes nodes = {};  // empty: all ranks are on this node
  };
  DeviceMesh(torch::Device device, BootstrapInfo info, std::unique_ptr<Group> world);
  ~DeviceMesh();

  torch::Device device() const { return device_; }
  // Returns the group of all ranks.
  Group& world() const { return *world_; }
  int rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  // Returns the group of all ranks for CPU tensors. If it shares memory, no call waits for a
  // device.
  Group& cpu_group() const { return info_->cpu_group ? *info_->cpu_group : *world_; }

  // Places the ranks in the mesh; without this call all are on dimension dp. Every rank passes the
  // same shape, before the first call of group(). Throws an Error unless the shape has as many
  // ranks as the world. Adds a note if ranks that share layers are on several nodes.
  void set_shape(const MeshShape& shape);
  const MeshLayout& layout() const { return layout_; }
  int coordinate(MeshDim dim) const { return layout_.coordinate(rank(), dim); }
  // Returns the group of the ranks that differ from this one in these dimensions only. The first
  // call for a set of dimensions is collective over all ranks.
  Group& group(MeshDims dims) const;
  // Returns the data-parallel group: ranks that see different samples.
  Group& dp_group() const { return group({MeshDim::kDp}); }
  // Returns the group of the ranks that hold the same parameters; parameters, gradients and
  // optimizer state shard over them (MeshLayout::shard_group). Collective like group().
  Group& shard_group(int num_replicas) const;
  // Returns the group of the ranks at these coordinates in dimension pp, ascending, that do not
  // differ otherwise; of one rank if this one is at none of them (MeshLayout::pp_group). Each name
  // has a group of its own. Its collectives are not logged, as most of them overlap with compute.
  // Collective like group().
  Group& pp_group(const std::string& name, const std::vector<int>& coordinates) const;
  // Return the members of shard_group() near this rank, and those with the same index in the other
  // secondary shard groups (MeshLayout::secondary_shard_group, secondary_replica_group). Collective
  // like group().
  Group& secondary_shard_group(int num_replicas, int dp_ranks) const;
  Group& secondary_replica_group(int num_replicas, int dp_ranks) const;
  // Returns the sum over all groups, except a separate cpu_group(), which no device waits for.
  CommTimes times() const;
  // Returns the times of each group in use, by name: "world", "tensor", "data x tensor".
  std::map<std::string, CommTimes> times_by_group() const;
  // Returns the nodes of the run with their ranks.
  const Nodes& nodes() const { return info_->nodes; }
  // Returns the number of ranks of this node, this one included.
  int local_size() const;
  // Starts to log collectives; from then on none of them overlaps with compute. Must be called
  // before any object keeps a reference to a group; a second call has no effect.
  void log_collectives(const configs::CommsLoggerConfig& config);
  CommLog* comm_log() const { return log_.get(); }  // null unless collectives are logged
  // Returns the name of the run, unique among the runs of this node.
  const std::string& run_id() const { return info_->run_id; }
  // Returns notes for the user about the connections, one line each.
  const std::vector<std::string>& notes() const { return info_->notes; }

 private:
  // Return the part of the world with this name, which the first call makes.
  template <typename Make>
  Group& part(const std::string& name, const Make& make) const;
  Group& part(const Partition& partition) const;

  torch::Device device_;
  // The order of the members matters: later ones refer to earlier ones.
  std::unique_ptr<BootstrapInfo> info_;
  std::unique_ptr<CommLog> log_;
  std::unique_ptr<Group> world_;
  Group* unlogged_world_;  // world_, or what it logs
  MeshLayout layout_;
  mutable std::map<std::string, std::unique_ptr<Group>> parts_;  // those that were requested
};

// Bandwidths in bytes per second; 0: no node has several ranks.
struct LinkSpeed {
  double intra_node = 0;  // received by a rank from its node's other ranks, all of them at once
  double inter_node = 0;  // sent by a node to the others, all of its ranks together
};

// Returns "intra-node 4.1 GB/s per rank, inter-node 118 MB/s per host", for example.
std::string to_string(const LinkSpeed& speed);

// Returns the bytes of the next probe after one of `bytes` took `seconds`; 0: that probe suffices.
int64_t next_probe_bytes(int64_t bytes, double seconds);

// Measures all-gathers that grow until the next one might take more than 0.08 s: under 0.5 s in all
// if 64 KiB take less than that. Requires several nodes. Collective. Throws an Error like these
// collectives.
LinkSpeed measure_links(const DeviceMesh& mesh);

struct RankEnv;

// Loads the GPU library if make_mesh will need it. A program that uses torch before it connects
// must call this first.
void load_device(const RankEnv& env);

// Returns the device type that make_mesh will use: kCPU or kCUDA. A program that uses torch before
// it connects must call this first. Throws an Error if a node has a driver whose GPUs cannot be
// used, and neither the launcher nor CUDA_VISIBLE_DEVICES selects the CPU.
torch::DeviceType device_type(const RankEnv& env);
// Returns the device type on a node with this GPU library and a driver.
torch::DeviceType device_type(const RankEnv& env, const device::Gpu& gpu);

// Connects the ranks. Throws an Error that names rank, address and port if that does not succeed in
// time. `on_hang` ends the process if a GPU waits longer than env.timeout for other ranks. It is
// called on another thread; by default the process is terminated with the message.
std::unique_ptr<DeviceMesh> make_mesh(const RankEnv& env, const HangHandler& on_hang = {});

}  // namespace zeroth::comm
