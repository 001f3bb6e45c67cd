// `zeroth agent`: starts a launcher's ranks on this host and tells the launcher what becomes of
// them.
#pragma once

#include <filesystem>

#include "launcher/cluster/agent_options.h"

namespace zeroth::launcher {

// Runs until the launcher lets it go (0, or what the launcher says), is lost (1, or the run's code
// to be started again), or this process is signalled before it runs ranks (128 + signal). When the
// launcher is lost the ranks are ended, by SIGTERM and then by SIGKILL. In no case is one left, nor
// what they started. Throws Error where the launcher cannot be reached in time. `zeroth_directory`:
// that of zeroth itself.
int run_agent(const AgentOptions& options, const std::filesystem::path& zeroth_directory);

}  // namespace zeroth::launcher
