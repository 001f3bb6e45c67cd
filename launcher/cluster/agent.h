// `zeroth agent` starts a launcher's ranks on this node and reports their state to the launcher.
// Launchers write its command line, users do not.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/transport/messages.h"

namespace zeroth::launcher {

struct AgentOptions {
  std::string launcher;  // the launcher's endpoints: ADDRESS:PORT[,ADDRESS:PORT...]
  int node = 0;          // index of this node in the job
  // Exactly one of these three sources of the run's secret is set, except on a node that joins.
  bool secret_on_stdin = false;
  std::string secret_variable;
  std::string secret_file;
  // The secret itself, on a node that joins.
  std::string secret = {};
  std::chrono::milliseconds connect_timeout{60'000};  // for a launcher that does not answer
  std::optional<Join> join = {};  // set on a node that joins without being started by the launcher
};

// Returns the value of an environment variable; empty if it is not set: read_variable() or a
// substitute for it.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Parses the `arguments` that follow "agent". Without --node the node index is the task's rank that
// OpenMPI, MPICH, Intel MPI or Slurm provides. Throws UsageError. Pure except for `lookup`.
AgentOptions parse_agent_options(const std::vector<std::string>& arguments, const Lookup& lookup);

// Reads the secret from its source: the first line of standard input, a variable, which is then
// unset, or a file, which is then removed, so that neither ranks nor other processes find it.
// Throws Error if it is too short for a secret, or if the file is not owned by this user or is
// readable by others.
std::string consume_secret(const AgentOptions& options);

// Runs until the launcher shuts the agent down (returns 0, or the launcher's status), until the
// launcher is lost (returns 1, or the run's requeue code), or until this process receives a signal
// before it runs ranks (returns 128 + signal). When the launcher is lost, the agent ends the ranks
// with SIGTERM and then SIGKILL. It never leaves a rank or a rank's descendant behind. Throws Error
// if the launcher cannot be reached in time. `zeroth_directory` is the directory of the zeroth
// executable.
int run_agent(const AgentOptions& options, const std::filesystem::path& zeroth_directory);

}  // namespace zeroth::launcher
