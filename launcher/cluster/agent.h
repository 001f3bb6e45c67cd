// `zeroth agent` starts a launcher's ranks on this node and reports their state to the launcher.
#pragma once

#include <filesystem>

#include "launcher/cluster/agent_options.h"

namespace zeroth::launcher {

// Runs until the launcher shuts the agent down (returns 0, or the launcher's status), until the
// launcher is lost (returns 1, or the run's requeue code), or until this process receives a signal
// before it runs ranks (returns 128 + signal). When the launcher is lost, the agent ends the ranks
// with SIGTERM and then SIGKILL. It never leaves a rank or a rank's descendant behind. Throws Error
// if the launcher cannot be reached in time. `zeroth_directory` is the directory of the zeroth
// executable.
int run_agent(const AgentOptions& options, const std::filesystem::path& zeroth_directory);

}  // namespace zeroth::launcher
