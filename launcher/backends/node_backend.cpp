#include "launcher/backends/node_backend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/text/printable.h"
#include "launcher/backends/shell_words.h"

namespace zeroth::launcher {
namespace {

using Args = std::vector<std::string>;

void append(Args& args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
}

std::string joined_host_names(const AgentLaunchRequest& request) {
  return fmt::format("{}", fmt::join(host_names(request.hosts), ","));
}

std::string num_nodes(const AgentLaunchRequest& request) {
  return std::to_string(request.hosts.size());
}

std::vector<int> all_hosts(const AgentLaunchRequest& request) {
  std::vector<int> hosts(request.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

Args agent_args(const AgentLaunchRequest& request, const Args& more) {
  Args args = {request.zeroth, "agent", "--launcher", request.launcher};
  append(args, more);
  return args;
}

// Returns one line for the remote user's login shell, whatever shell that is.
std::string remote_command_line(const Args& args) {
  return "exec " + shell_join(args);
}

// Shorter than the launcher's timeout for agents, so that ssh reports its own reason.
constexpr const char* kConnectTimeout = "ConnectTimeout=30";

// Returns the command that runs `remote` on one host with the secret as its input. BatchMode: no
// user can answer a prompt.
AgentCommand ssh_command(const AgentLaunchRequest& request, int host, const Args& args,
                         const Args& remote) {
  Args argv = {"ssh", "-o", "BatchMode=yes"};
  if (request.ssh_port) append(argv, {"-p", std::to_string(*request.ssh_port)});
  append(argv, args);  // ssh uses the first of two ConnectTimeouts
  append(argv, {"-o", kConnectTimeout});
  append(argv, {"--", request.hosts[static_cast<size_t>(host)].host, remote_command_line(remote)});
  return {.argv = argv, .input = request.secret + "\n", .hosts = {host}};
}

AgentCommands make_local_commands(const AgentLaunchRequest& request) {
  AgentCommands start;
  for (const int host : all_hosts(request))
    start.agents.push_back(
        {.argv = agent_args(request, {"--node", std::to_string(host), "--secret-stdin"}),
         .input = request.secret + "\n",
         .hosts = {host}});
  return start;
}

AgentCommands make_ssh_commands(const AgentLaunchRequest& request) {
  AgentCommands start = make_local_commands(request);
  for (AgentCommand& agent : start.agents)
    agent = ssh_command(request, agent.hosts[0], request.launcher_args, agent.argv);
  return start;
}

// Makes pdsh's commands. pdsh forwards no input, and its command line is visible to all users: ssh
// puts the secret into a file beforehand. `set -C` creates the file or fails, so that no other user
// can have created it. pdsh replaces %n by the host's index, and %% by %.
AgentCommands make_pdsh_commands(const AgentLaunchRequest& request) {
  AgentCommands start;
  const std::string file = fmt::format("/tmp/zeroth-{}-", request.token);
  const Args user_args = shell_split(request.pdsh_ssh_args, "PDSH_SSH_ARGS_APPEND");
  for (const int host : all_hosts(request)) {
    const auto shell = [&](std::string_view script) {
      return ssh_command(request, host, user_args,
                         {"/bin/sh", "-c", fmt::format("{} {}{}", script, file, host)});
    };
    start.setup.push_back(shell("umask 077 && set -C && cat >"));
    start.cleanup.push_back(shell("rm -f"));
    start.cleanup.back().input.clear();
  }
  std::string line = remote_command_line(agent_args(request, {"--secret-file"}));
  for (size_t at = 0; (at = line.find('%', at)) != std::string::npos; at += 2) line.insert(at, "%");
  line += fmt::format(" {}%n --node %n", file);
  std::string ssh_args = request.pdsh_ssh_args + (request.pdsh_ssh_args.empty() ? "" : " ") +
                         "-o BatchMode=yes -o " + kConnectTimeout;
  if (request.ssh_port) ssh_args += fmt::format(" -p {}", *request.ssh_port);
  AgentCommand command{.env = {{"PDSH_RCMD_TYPE", "ssh"}, {"PDSH_SSH_ARGS_APPEND", ssh_args}},
                       .hosts = all_hosts(request)};
  command.argv = {"pdsh", "-S", "-f", "1024", "-w", joined_host_names(request)};
  append(command.argv, request.launcher_args);
  command.argv.push_back(line);
  start.agents.push_back(std::move(command));
  return start;
}

// Makes a command that starts one agent on each host, in the order of the hosts. An agent gets its
// index from MPI or Slurm, and the secret from a variable whose name is on the command line.
AgentCommands make_mpi_commands(const AgentLaunchRequest& request, Args argv, const Args& own) {
  append(argv, request.launcher_args);
  append(argv, own);
  append(argv, agent_args(request, {"--secret-env", kRunSecretVariable}));
  return {.agents = {{.argv = std::move(argv),
                      .env = {{kRunSecretVariable, request.secret}},
                      .hosts = all_hosts(request)}}};
}

// Makes Open MPI's command. `seq` keeps the order: other mappings put this machine first. An agent
// bound to a core would have no others for its ranks. DeepSpeed's btl settings are for ranks that
// communicate over MPI.
AgentCommands make_openmpi_commands(const AgentLaunchRequest& request) {
  return make_mpi_commands(request,
                           {"mpirun", "-n", num_nodes(request), "--host",
                            joined_host_names(request), "--map-by", "seq", "--bind-to", "none"},
                           {"-x", kRunSecretVariable});
}

AgentCommands make_mpich_commands(const AgentLaunchRequest& request) {
  return make_mpi_commands(request, {"mpirun", "-n", num_nodes(request), "-ppn", "1"},
                           {"-genvlist", kRunSecretVariable, "-hosts", joined_host_names(request)});
}

AgentCommands make_impi_commands(const AgentLaunchRequest& request) {
  return make_mpi_commands(request, {"mpirun", "-n", num_nodes(request), "-ppn", "1"},
                           {"-genv", "I_MPI_PIN", "0", "-genvlist", kRunSecretVariable, "-hosts",
                            joined_host_names(request)});
}

// Throws UsageError unless the slots are the first ones and equally many: Slurm selects the devices
// itself.
void check_slots_for_slurm(const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts) {
    if (host.slots.back() != static_cast<int>(host.slots.size()) - 1)
      throw UsageError(
          "--launcher slurm: slots {} of {} are not the first ones, and Slurm cannot select "
          "specific GPUs; use --num_gpus, or another launcher",
          shortened(fmt::format("{}", fmt::join(host.slots, ","))), host.host);
    if (host.slots.size() != hosts[0].slots.size())
      throw UsageError(
          "--launcher slurm: {} has {} slots, but {} has {}: all hosts must have the same number",
          hosts[0].host, hosts[0].slots.size(), host.host, host.slots.size());
  }
}

// Makes Slurm's command. `arbitrary` keeps the order, which Slurm would change. If an agent fails,
// the launcher itself ends the others and reports why.
AgentCommands make_slurm_commands(const AgentLaunchRequest& request) {
  check_slots_for_slurm(request.hosts);
  Args argv = {"srun", "-n", num_nodes(request), "--ntasks-per-node=1"};
  append(argv, {"--nodes", num_nodes(request), "--nodelist", joined_host_names(request)});
  append(argv, {"--distribution=arbitrary", "--cpu-bind=none", "--kill-on-bad-exit=0"});
  if (request.gpus_per_node)
    append(argv, {"--gpus-per-node", std::to_string(*request.gpus_per_node)});
  return make_mpi_commands(request, argv, {fmt::format("--export=ALL,{}", kRunSecretVariable)});
}

constexpr NodeBackend kLocalBackend = {"", "", true, true, make_local_commands};
constexpr NodeBackend kBackends[] = {
    {"ssh", "ssh", true, true, make_ssh_commands},
    {"pdsh", "pdsh", true, false, make_pdsh_commands},
    {"openmpi", "mpirun", false, false, make_openmpi_commands},
    {"mpich", "mpirun", false, false, make_mpich_commands},
    {"impi", "mpirun", false, false, make_impi_commands},
    {"slurm", "srun", false, false, make_slurm_commands},
};

void check_hosts(const NodeBackend& backend, const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts) {
    if (!backend.takes_users && host.host.find('@') != std::string::npos)
      throw UsageError(
          "--launcher {}: a user before a host, as in {}, is not supported; set the user in "
          "~/.ssh/config, or use --launcher ssh",
          backend.name, host.host);
    if (!backend.takes_ipv6 && is_ipv6(host.host))
      throw UsageError(
          "--launcher {}: an IPv6 address as a host, as {}, is not supported; give the host a "
          "name, or use --launcher ssh",
          backend.name, host.host);
  }
}

}  // namespace

const NodeBackend& find_backend(std::string_view name) {
  for (const NodeBackend& backend : kBackends)
    if (backend.name == name) return backend;
  if (name == "mvapich")
    throw UsageError(
        "--launcher mvapich is not supported: ranks do not communicate by MPI here; --launcher "
        "mpich starts agents with the same kind of mpirun, --launcher ssh without any");
  Args names;
  for (const NodeBackend& backend : kBackends) names.emplace_back(backend.name);
  throw UsageError("--launcher {}: must be one of {}", shortened(name), fmt::join(names, ", "));
}

const NodeBackend& local_backend() {
  return kLocalBackend;
}

AgentCommands make_agent_commands(const NodeBackend& backend, const AgentLaunchRequest& request) {
  check_hosts(backend, request.hosts);
  return backend.make_commands(request);
}

std::string to_shell_command(const AgentCommand& command, std::string_view secret) {
  const std::string placeholder = fmt::format("\"${}\"", kRunSecretVariable);
  std::string text;
  if (!command.input.empty()) text += fmt::format("printf '%s\\n' {} | ", placeholder);
  for (const auto& [name, value] : command.env)
    text += fmt::format("{}={} ", name, value == secret ? placeholder : shell_quote(value));
  return text + shell_join(command.argv);
}

}  // namespace zeroth::launcher
