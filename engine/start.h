// First call of a user's program: from a ds_config.json and the launcher's environment to the
// arguments of initialize().
//
//   zeroth::Start run = zeroth::start("ds_config.json");
//   auto engine = zeroth::initialize(make_my_blocks(), run.config, run.mesh);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"
#include "comm/mesh_layout.h"
#include "configs/resolve.h"
#include "model/tensor_parallel.h"

namespace zeroth::engine {

// StartOptions holds what the file may leave to the program; see configs::FlagValues and
// configs::RunFacts.
struct StartOptions {
  configs::FlagValues flags = {};
  int64_t hidden_size = 0;                  // for "auto" bucket sizes
  std::optional<int64_t> total_steps = {};  // for an "auto" total_num_steps
};

// Returns the mesh shape of a run's ranks. Ranks that share layers are neighbors.
comm::MeshShape grid_shape(const configs::Config& config, int ranks);

// Sets the mesh's shape, and turns on the log of collectives if comms_logger requests it. Call it
// before anything keeps a reference to a group, as tensor-parallel blocks do.
void arrange(comm::DeviceMesh& mesh, const configs::Config& config);

// Returns this rank in its tensor-parallel group, for model::build_blocks; null if each layer is on
// one rank. Keeps a reference to the mesh's group. Collective if that group does not exist yet.
model::TensorParallelPtr tensor_parallel_group(const comm::DeviceMesh& mesh,
                                               const configs::Config& config);

// Returns the first rank of the group without the others, to compute shapes and memory.
model::TensorParallelPtr fake_tensor_parallel(const configs::Config& config);

// A Start is a run's configuration and connected mesh. After an error, leave the program without
// destroying `mesh`: its destructor may wait for peers that wait for this rank. Declare it outside
// the try block whose handler ends the process.
struct Start {
  configs::Config config;
  std::shared_ptr<comm::DeviceMesh> mesh;
  std::vector<std::string> notes;  // for the user, one line each
};

// Resolves the configuration, then connects the ranks, sets the mesh's shape and applies the
// launcher's number of threads. Call it before any other use of torch, which matters on a GPU.
// Collective. Throws an Error with all errors of the configuration, or one that names rank, address
// and port. Before that it prepares the process: open_standard_streams (a write to a closed pipe
// fails instead of ending the run), install_sigbus_handler with the program's name and rank, and
// retain_freed_memory.
Start start(const std::string& ds_config, const StartOptions& options = {});

// Does the same for a given environment, of which there may be several in one process. It does not
// prepare the process.
Start start(const std::string& ds_config, const comm::RankEnv& env, const StartOptions& options);

}  // namespace zeroth::engine

namespace zeroth {
using engine::Start;
using engine::start;
}  // namespace zeroth
