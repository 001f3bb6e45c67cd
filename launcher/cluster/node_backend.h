// How agents are started on other hosts: the command lines of ssh, pdsh, MPI's starters and Slurm.
// Pure. None of them starts the program itself, and no argument of it stands here: an agent gets
// these over its own connection.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/cluster/host_slots.h"

namespace zeroth::launcher {

struct AgentCommand {                  // one process that the launcher starts to start agents
  std::vector<std::string> argv = {};  // no shell
  std::vector<std::pair<std::string, std::string>> env = {};  // on top of the launcher's own
  std::string input = {};       // for its standard input (the secret), may be empty
  std::vector<int> hosts = {};  // whose agents it starts

  bool operator==(const AgentCommand&) const = default;
};

struct AgentLaunchRequest {
  std::vector<HostSlots> hosts;
  std::string zeroth;    // the launcher's own file, absolute: where hosts have it too
  std::string launcher;  // ADDRESS:PORT[,ADDRESS:PORT] at which agents reach the launcher
  std::string secret;    // of the run, without a line's end
  std::string token;     // random, of letters and digits: what names a secret's file on the hosts
  std::vector<std::string> launcher_args = {};
  std::optional<int> ssh_port = {};
  std::string pdsh_ssh_args = {};         // PDSH_SSH_ARGS_APPEND, as the user has it
  std::optional<int> gpus_per_node = {};  // to be asked of Slurm; unset: what the job has
};

// `setup` has to end with 0 before `agents` start; where a host then has no agent that took its
// secret, `clean_up` removes what `setup` left there. Both are empty for all but pdsh.
struct AgentCommands {
  std::vector<AgentCommand> setup;
  std::vector<AgentCommand> agents;
  std::vector<AgentCommand> clean_up;
};

struct NodeBackend {
  const char* name;  // as --launcher has it
  const char* tool;  // the program along PATH that it needs
  bool takes_users;  // USER@HOST
  bool takes_ipv6;   // addresses as hosts
  AgentCommands (*make_commands)(const AgentLaunchRequest& request);
};

// The variable that agents take the secret from where MPI or Slurm starts them.
inline constexpr const char* kRunSecretVariable = "ZEROTH_RUN_SECRET";

// Throws UsageError on a name that none has; of mvapich with what to use instead.
const NodeBackend& find_backend(std::string_view name);

// Starts agents as processes of this machine, which then is the only host that has one started; no
// user names it.
const NodeBackend& local_backend();

// Throws UsageError on hosts that the backend cannot reach as they are written.
AgentCommands make_agent_commands(const NodeBackend& backend, const AgentLaunchRequest& request);

// The command for a person's shell, in which $ZEROTH_RUN_SECRET stands for the secret.
std::string to_shell_command(const AgentCommand& command, std::string_view secret);

}  // namespace zeroth::launcher
