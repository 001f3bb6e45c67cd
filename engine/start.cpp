#include "engine/start.h"

#include <utility>

#include "comm/rank_threads.h"

namespace zeroth::engine {

Start start(const std::string& ds_config, const StartOptions& options) {
  return start(ds_config, comm::RankEnv::from_environment(), options);
}

Start start(const std::string& ds_config, const comm::RankEnv& env, const StartOptions& options) {
  configs::Resolved resolved = configs::resolve(configs::load(ds_config), options.flags,
                                                {.world_size = env.world_size,
                                                 .hidden_size = options.hidden_size,
                                                 .total_steps = options.total_steps});
  Start run{.config = resolved.config, .mesh = comm::make_mesh(env), .notes = {}};
  run.notes = std::move(resolved.warnings);
  run.notes.insert(run.notes.end(), resolved.notes.begin(), resolved.notes.end());
  const auto& of_mesh = run.mesh->notes();
  run.notes.insert(run.notes.end(), of_mesh.begin(), of_mesh.end());
  comm::set_num_threads(env, *run.mesh);
  return run;
}

}  // namespace zeroth::engine
