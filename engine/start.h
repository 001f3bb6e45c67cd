// What a program of one's own does first: from a ds_config.json and the launcher's environment to
// what initialize() takes.
//
//   zeroth::Start run = zeroth::start("ds_config.json");
//   auto engine = zeroth::initialize(make_my_blocks(), run.config, run.mesh);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "comm/mesh_layout.h"
#include "comm/rank_env.h"
#include "configs/resolve.h"

namespace zeroth::engine {

// What the file may leave to the program; see configs::FlagValues and configs::RunFacts.
struct StartOptions {
  configs::FlagValues flags = {};
  int64_t hidden_size = 0;                  // for "auto" bucket sizes
  std::optional<int64_t> total_steps = {};  // for an "auto" total_num_steps
};

// Where the ranks of a run stand: those that split layers are neighbours.
comm::MeshShape grid_shape(const configs::Config& config, int ranks);

// Gives the ranks of a mesh these places, and has their collectives written down where comms_logger
// asks for it. To be called before anything keeps a reference to a group, as blocks that ranks
// share do.
void arrange(comm::DeviceMesh& mesh, const configs::Config& config);

// An error should leave a program without destroying `mesh`: its destructor may wait for peers that
// wait for this rank. Declare it outside the try block whose handler ends the process.
struct Start {
  configs::Config config;
  std::shared_ptr<comm::DeviceMesh> mesh;
  std::vector<std::string> notes;  // what the user should know, one line each
};

// Resolves the configuration, then connects the ranks, gives them their places and takes over the
// launcher's number of threads. To be called before any other use of torch, which matters on a GPU.
// Collective. Throws an Error with every complaint about the configuration, or one that names rank,
// address and port. First of all it prepares the process: open_standard_streams (a write that
// nobody reads fails instead of ending the run), install_sigbus_handler with the program's name and
// rank, and retain_freed_memory.
Start start(const std::string& ds_config, const StartOptions& options = {});

// The same for an environment at hand, of which there may be several in one process: it prepares
// nothing.
Start start(const std::string& ds_config, const comm::RankEnv& env, const StartOptions& options);

}  // namespace zeroth::engine

namespace zeroth {
using engine::Start;
using engine::start;
}  // namespace zeroth
