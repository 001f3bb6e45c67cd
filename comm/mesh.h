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
#include "comm/hosts.h"
#include "comm/rank_grid.h"
#include "comm/watchdog.h"

namespace c10d {
class Store;
}

namespace zeroth::device {
class Gpu;
}

namespace zeroth::comm {

class Mesh {
 public:
  Mesh(torch::Device device, std::unique_ptr<Group> world);

  // How the ranks met: `key_store` lives as long as the mesh, because rank 0 may serve it to the
  // others.
  struct Meeting {
    c10::intrusive_ptr<c10d::Store> key_store;
    std::string run_id = "1";  // the same on all ranks
    int local_size = 0;        // ranks of this machine; 0: all are
    std::vector<std::string> notes;
    // All ranks, for tensors of the CPU, where `world` takes only those of the device.
    std::unique_ptr<Group> host;
    Hosts hosts = {};  // empty: all ranks are on this one
  };
  Mesh(torch::Device device, Meeting meeting, std::unique_ptr<Group> world);
  ~Mesh();

  torch::Device device() const { return device_; }
  // All ranks.
  Group& world() const { return *world_; }
  int rank() const { return world_->rank(); }
  int world_size() const { return world_->size(); }
  // All ranks, for tensors of the CPU: where these share memory, no device is waited for.
  Group& host() const { return meeting_->host ? *meeting_->host : *world_; }

  // Gives the ranks their places; without it they are all on axis data. The same on all ranks, and
  // before group() is asked for any. Throws an Error unless the shape has as many ranks as the
  // world. Adds a note where ranks that share layers are on several machines.
  void arrange(const GridShape& shape);
  const RankGrid& grid() const { return grid_; }
  int coordinate(Axis axis) const { return grid_.coordinate(rank(), axis); }
  // The ranks that differ from this one on these axes alone. Collective when it is first asked for
  // these axes, over all ranks.
  Group& group(Axes axes) const;
  // Ranks that see different samples.
  Group& data() const { return group({Axis::kData}); }
  // Ranks that hold the same parameters, over which these, gradients and optimizer state shard
  // (RankGrid::sharing). Collective as group().
  Group& sharing(int copies) const;
  // Of these the ones near this rank, and those that stand where it does further off
  // (RankGrid::sharing_near, sharing_across). Collective as group().
  Group& sharing_near(int copies, int data_ranks) const;
  Group& sharing_across(int copies, int data_ranks) const;
  // Of all groups together but a host() of its own, which no device waits for.
  CommTimes times() const;
  // The same of each group that was asked for, by its name: "world", "tensor", "data x tensor".
  std::map<std::string, CommTimes> times_by_group() const;
  // The machines of the run, and who is where.
  const Hosts& hosts() const { return meeting_->hosts; }
  // Ranks of this machine, this one included.
  int local_size() const { return meeting_->local_size > 0 ? meeting_->local_size : world_size(); }
  // From now on collectives are written down, and none of them overlaps with compute. To be called
  // before anything keeps a reference to a group; a second call changes nothing.
  void log_collectives(const configs::CommsLoggerConfig& config);
  CommLog* comm_log() const { return log_.get(); }  // null unless collectives are written down
  // Names the run among those of this machine.
  const std::string& run_id() const { return meeting_->run_id; }
  // What the user should know about the connections, one line each.
  const std::vector<std::string>& notes() const { return meeting_->notes; }

 private:
  Group& part(const Partition& partition) const;

  torch::Device device_;
  // What is made later refers to what is made before it.
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<CommLog> log_;
  std::unique_ptr<Group> world_;
  RankGrid grid_;
  // Parts of the world that were asked for.
  mutable std::map<Axes, std::unique_ptr<Group>> parts_;
  mutable std::map<std::string, std::unique_ptr<Group>> sharing_;  // that no axes make up, by name
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
// in time. `on_stuck`: how to leave when a GPU waits longer than env.timeout for other ranks,
// called on another thread; by default the process is terminated with the message.
std::unique_ptr<Mesh> make_mesh(const RankEnv& env, const OnStuck& on_stuck = {});

}  // namespace zeroth::comm
