// The command line of `zeroth agent`, which launchers write and no user does, and the run's secret.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/messages.h"

namespace zeroth::launcher {

struct AgentOptions {
  std::string launcher;  // where it is reached: ADDRESS:PORT[,ADDRESS:PORT...]
  int node = 0;          // which host of the job this is
  // One of the three:
  bool secret_on_stdin = false;
  std::string secret_variable;
  std::string secret_file;
  // Or this, of a host that joins.
  std::string secret = {};
  std::chrono::milliseconds connect_timeout{60'000};  // with a launcher that does not answer
  std::optional<Join> join = {};                      // nobody has asked this host
};

// The value of an environment variable; empty optional: not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// `arguments` behind "agent". Without --node it is the task's number, as OpenMPI, MPICH, Intel MPI
// or Slurm tells it. Throws UsageError. Pure but for `lookup`.
AgentOptions parse_agent_options(const std::vector<std::string>& arguments, const Lookup& lookup);

// A variable of this process; for parse_agent_options().
std::optional<std::string> read_variable(const std::string& name);

// Takes the secret from where it is: of standard input the first line; a variable is unset, a file
// removed, so that neither ranks nor others find it. Throws Error where it is too short to be one,
// and where the file is not one of this user that nobody else may read.
std::string consume_secret(const AgentOptions& options);

}  // namespace zeroth::launcher
