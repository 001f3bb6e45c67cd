// Backends that start agents on other nodes: the command lines of ssh, pdsh, MPI launchers and
// Slurm. Pure. No backend starts the program itself, and no argument of it appears here: an agent
// receives these over its own connection.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/backends/hostfile.h"

namespace zeroth::launcher {

struct AgentCommand {                  // one process of the launcher that starts agents
  std::vector<std::string> argv = {};  // no shell
  std::vector<std::pair<std::string, std::string>> env = {};  // on top of the launcher's own
  std::string input = {};       // standard input (the secret), may be empty
  std::vector<int> hosts = {};  // nodes whose agents it starts

  bool operator==(const AgentCommand&) const = default;
};

struct AgentLaunchRequest {
  std::vector<HostSlots> hosts = {};
  // The launcher's own executable, absolute; nodes have it at the same path.
  std::string zeroth = {};
  std::string launcher = {};  // ADDRESS:PORT[,ADDRESS:PORT] at which agents reach the launcher
  std::string secret = {};    // of the run, without a newline
  // Random letters and digits, for the name of a secret's file on the nodes.
  std::string token = {};
  std::vector<std::string> launcher_args = {};
  std::optional<int> ssh_port = {};
  std::string pdsh_ssh_args = {};         // PDSH_SSH_ARGS_APPEND as set by the user
  std::optional<int> gpus_per_node = {};  // requested from Slurm; empty: those of the job
};

// AgentCommands holds the commands in three phases. `setup` must exit with 0 before `agents` start.
// If a node then has no agent that consumed its secret, `cleanup` removes the files of `setup`
// there. Both are empty except for pdsh.
struct AgentCommands {
  std::vector<AgentCommand> setup = {};
  std::vector<AgentCommand> agents = {};
  std::vector<AgentCommand> cleanup = {};
};

struct NodeBackend {
  const char* name;  // value of --launcher
  const char* tool;  // the program in PATH that it requires
  bool takes_users;  // supports USER@HOST
  bool takes_ipv6;   // supports IPv6 addresses as hosts
  AgentCommands (*make_commands)(const AgentLaunchRequest& request);
};

// The variable from which agents read the secret if MPI or Slurm starts them.
inline constexpr const char* kRunSecretVariable = "ZEROTH_RUN_SECRET";

// Returns the backend of this name. Throws UsageError on an unknown one; for mvapich, the message
// names alternatives.
const NodeBackend& find_backend(std::string_view name);

// Returns the backend that starts agents as processes of this machine, which must be the only host
// whose agent the launcher starts. It is not available as a flag.
const NodeBackend& local_backend();

// Makes the commands that start the agents. Throws UsageError on host names that the backend does
// not support.
AgentCommands make_agent_commands(const NodeBackend& backend, const AgentLaunchRequest& request);

// Returns the command for a person's shell, with $ZEROTH_RUN_SECRET in place of the secret.
std::string to_shell_command(const AgentCommand& command, std::string_view secret);

}  // namespace zeroth::launcher
