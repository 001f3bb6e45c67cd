// The ranks of a run: who I am, on which device, and the group of all of them.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm_log.h"
#include "comm/group.h"
#include "comm/watchdog.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

class Mesh {
 public:
  Mesh(torch::Device device, std::unique_ptr<Group> data);

  // How the ranks met: `key_store` lives as long as the mesh, because rank 0 may serve it to the
  // others.
  struct Meeting {
    c10::intrusive_ptr<c10d::Store> key_store;
    std::string run_id = "1";  // the same on all ranks
    int local_size = 0;        // ranks of this machine; 0: all are
    std::vector<std::string> notes;
  };
  Mesh(torch::Device device, Meeting meeting, std::unique_ptr<Group> data);
  ~Mesh();

  torch::Device device() const { return device_; }
  // Ranks that see different samples; parameters, gradients and optimizer state shard over this
  // group.
  Group& data() const { return *data_; }
  int rank() const { return data_->rank(); }
  int world_size() const { return data_->size(); }
  // Ranks of this machine, this one included.
  int local_size() const { return meeting_->local_size > 0 ? meeting_->local_size : world_size(); }
  // From now on collectives are written down, and none of them overlaps with compute. To be called
  // before anything keeps a reference to data(); a second call changes nothing.
  void log_collectives(const configs::CommsLoggerConfig& config);
  CommLog* comm_log() const { return log_.get(); }  // null unless collectives are written down
  // Names the run among those of this machine.
  const std::string& run_id() const { return meeting_->run_id; }
  // What the user should know about the connections, one line each.
  const std::vector<std::string>& notes() const { return meeting_->notes; }

 private:
  torch::Device device_;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<CommLog> log_;
  std::unique_ptr<Group> data_;
};

// How barrier() names its collective.
inline constexpr std::string_view kBarrier = "a barrier";

// Returns when every rank of the mesh has called it. Collective.
void barrier(const Mesh& mesh);

// The least and the greatest of the values of all ranks. `what` names the values in the message of
// a rank that waits in vain. Collective.
int64_t least_over_ranks(int64_t value, std::string_view what, const Mesh& mesh);
int64_t greatest_over_ranks(int64_t value, std::string_view what, const Mesh& mesh);

struct RankEnv;

// Loads the GPU library where make_mesh will want it. For programs that use torch before they
// connect: to be called first.
void load_device(const RankEnv& env);

// What make_mesh will compute on: kCPU or kCUDA. To be called as load_device.
torch::DeviceType device_type(const RankEnv& env);

// Connects the ranks. Throws an Error that names rank, address and port when that does not succeed
// in time. `on_stuck`: how to leave when a GPU waits longer than env.timeout for other ranks,
// called on another thread; by default the process is terminated with the message.
std::unique_ptr<Mesh> make_mesh(const RankEnv& env, const OnStuck& on_stuck = {});

}  // namespace zeroth::comm
