#include "engine/start.h"

#include <errno.h>  // program_invocation_short_name
#include <fmt/format.h>

#include "base/machine/host_limits.h"
#include "base/machine/signals.h"
#include "base/machine/standard_streams.h"
#include "comm/rank_threads.h"

namespace zeroth::engine {

comm::MeshShape grid_shape(const configs::Config& config, int ranks) {
  return comm::MeshShape()
      .with(comm::MeshDim::kPp, static_cast<int>(config.pipeline.stages))
      .with(comm::MeshDim::kDp, static_cast<int>(config.data_ranks(ranks)))
      .with(comm::MeshDim::kTp, static_cast<int>(config.tensor_parallel.size));
}

void arrange(comm::DeviceMesh& mesh, const configs::Config& config) {
  mesh.set_shape(grid_shape(config, mesh.world_size()));
  if (config.comms_logger.enabled) mesh.log_collectives(config.comms_logger);
}

model::TensorParallelPtr tensor_parallel_group(const comm::DeviceMesh& mesh,
                                               const configs::Config& config) {
  const int size = mesh.layout().shape()[comm::MeshDim::kTp];
  if (size == 1) return {};
  return std::make_shared<model::TensorParallel>(
      mesh.coordinate(comm::MeshDim::kTp), size,
      model::TensorParallel::CommOptions{.group = &mesh.group({comm::MeshDim::kTp}),
                                         .overlap = config.tensor_parallel.overlap_comm});
}

model::TensorParallelPtr fake_tensor_parallel(const configs::Config& config) {
  const auto size = static_cast<int>(config.tensor_parallel.size);
  if (size == 1) return {};
  return std::make_shared<model::TensorParallel>(0, size, model::TensorParallel::CommOptions{});
}

Start start(const std::string& ds_config, const StartOptions& options) {
  open_standard_streams();
  const comm::RankEnv env = comm::RankEnv::from_environment();
  const std::string program = ::program_invocation_short_name;
  install_sigbus_handler(env.world_size > 1 ? fmt::format("{}: rank {}", program, env.rank)
                                            : program);
  retain_freed_memory();
  return start(ds_config, env, options);
}

Start start(const std::string& ds_config, const comm::RankEnv& env, const StartOptions& options) {
  configs::Resolved resolved = configs::resolve(configs::load(ds_config), options.flags,
                                                {.world_size = env.world_size,
                                                 .hidden_size = options.hidden_size,
                                                 .total_steps = options.total_steps});
  Start run{.config = resolved.config, .mesh = comm::make_mesh(env), .notes = {}};
  arrange(*run.mesh, run.config);
  run.notes = configs::diagnostic_lines(resolved.notes);
  const auto& of_mesh = run.mesh->notes();
  run.notes.insert(run.notes.end(), of_mesh.begin(), of_mesh.end());
  comm::set_num_threads(env, *run.mesh);
  return run;
}

}  // namespace zeroth::engine
