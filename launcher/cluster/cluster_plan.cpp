#include "launcher/cluster/cluster_plan.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/backends/scheduler_node.h"
#include "launcher/backends/shell_words.h"
#include "launcher/cluster/join_run.h"
#include "launcher/cluster/place_elastic.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/this_machine.h"

namespace zeroth::launcher {
namespace {

// Notes flags for reaching nodes if the launcher reaches none.
void note_unused(const HostOptions& flags, std::string_view reason, Placement& placement) {
  const auto note = [&](bool given, std::string_view flag) {
    if (given) placement.notes.push_back(fmt::format("{} has no effect: {}", flag, reason));
  };
  note(flags.ssh_port.has_value(), "--ssh_port");
  note(flags.launcher.has_value(), "--launcher");
  note(!flags.launcher_args.empty(), "--launcher_args");
  note(flags.no_ssh_check, "--no_ssh_check");
}

void note_unused_on_one_node(const HostOptions& flags, Placement& placement) {
  if (flags.launcher) find_backend(*flags.launcher);  // reports a wrong name
  const auto note = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) placement.notes.push_back(fmt::format("{} has no effect: {}", flag, reason));
  };
  note(flags.no_ssh, "--no_ssh", "one machine needs no ssh");
  note(flags.node_rank.has_value(), "--node_rank 0", "this machine is the only host");
  note_unused(flags, "one machine needs no ssh", placement);
}

void check_node_rank(int node_rank, int num_nodes, std::string_view who) {
  if (node_rank >= num_nodes)
    throw UsageError("--node_rank {}: {} hosts 0 to {}", node_rank, who, num_nodes - 1);
}

// Places ranks if a person starts zeroth on each of --num_nodes machines, which have equally many
// ranks.
Placement place_manual_uniform(const LaunchOptions& options) {
  const HostOptions& flags = options.hosts;
  const int num_nodes = *flags.num_nodes;
  if (!flags.node_rank)
    throw UsageError(
        "--no_ssh needs --node_rank: it says which of the {} hosts this machine is (0 to {})",
        num_nodes, num_nodes - 1);
  check_node_rank(*flags.node_rank, num_nodes, fmt::format("--num_nodes {} selects", num_nodes));
  if (!options.master_addr)
    throw UsageError(
        "--no_ssh needs --master_addr: the address of host 0, at which the other hosts reach rank "
        "0");
  Placement placement;
  placement.node_ranks = {.node_rank = *flags.node_rank, .num_nodes = num_nodes};
  if (flags.launcher) find_backend(*flags.launcher);
  note_unused(flags, "with --no_ssh no host is contacted", placement);
  return placement;
}

Placement place_without_hostfile(const LaunchOptions& options) {
  const HostOptions& flags = options.hosts;
  if (flags.no_ssh && flags.num_nodes.value_or(1) > 1) return place_manual_uniform(options);
  const auto alone = [](std::string_view flag) {
    return UsageError(
        "{}: without a hostfile this machine is the only host; --hostfile FILE names others", flag);
  };
  if (flags.num_nodes.value_or(1) != 1)
    throw alone(fmt::format("--num_nodes {}", *flags.num_nodes));
  if (flags.node_rank.value_or(0) != 0)
    throw alone(fmt::format("--node_rank {}", *flags.node_rank));
  if (flags.force_multi) throw alone("--force_multi");
  Placement placement;
  if (flags.num_nodes)
    placement.notes.emplace_back("--num_nodes 1 has no effect: this machine is the only host");
  note_unused_on_one_node(flags, placement);
  return placement;
}

NodeRanks node_ranks_of(const std::vector<HostSlots>& hosts, int host) {
  return {.node_rank = host,
          .num_nodes = static_cast<int>(hosts.size()),
          .first_rank = first_rank_of(hosts, host),
          .world_size = count_ranks(hosts)};
}

// Places ranks if a person starts zeroth on each host.
Placement place_manual(const LaunchOptions& options, const std::vector<HostSlots>& hosts) {
  const HostOptions& flags = options.hosts;
  const int last = static_cast<int>(hosts.size()) - 1;
  if (!flags.node_rank)
    throw UsageError(
        "--no_ssh needs --node_rank: it says which of the {} of the hostfile this machine is (0 to "
        "{}, in the order of the file)",
        pluralize(std::ssize(hosts), "host"), last);
  check_node_rank(*flags.node_rank, last + 1, "the hostfile and the flags select");
  if (!options.master_addr && last > 0)
    throw UsageError(
        "--no_ssh needs --master_addr: the address of host 0, {}, at which the other hosts reach "
        "rank 0",
        hosts[0].host);
  Placement placement;
  placement.slots = hosts[static_cast<size_t>(*flags.node_rank)].slots;
  placement.node_ranks = node_ranks_of(hosts, *flags.node_rank);
  if (flags.launcher) find_backend(*flags.launcher);
  note_unused(flags, "with --no_ssh no host is contacted", placement);
  return placement;
}

// Places ranks if Slurm, MPI or Kubernetes has started a zeroth on each node. `hosts` are the
// hostfile's, or empty.
Placement place_by_scheduler(const LaunchOptions& options, const std::vector<HostSlots>& hosts,
                             const SchedulerNode& by) {
  const HostOptions& flags = options.hosts;
  const std::string who = fmt::format("{} has started zeroth on", by.scheduler);
  const std::string nodes = pluralize(by.num_nodes, "node");
  if (!hosts.empty() && std::ssize(hosts) != by.num_nodes)
    throw UsageError(
        "{} {}, but the hostfile and the flags select {}: to use only these, pass --no_ssh with "
        "--node_rank and --master_addr",
        who, nodes, pluralize(std::ssize(hosts), "host"));
  if (hosts.empty() && flags.num_nodes.value_or(by.num_nodes) != by.num_nodes)
    throw UsageError("--num_nodes {}: {} {}", *flags.num_nodes, who, nodes);
  if (flags.force_multi) throw UsageError("--force_multi: {} {}, no agent is needed", who, nodes);
  const int node = flags.node_rank.value_or(by.node);
  check_node_rank(node, by.num_nodes, who);
  if (!options.master_addr && !by.master_addr)
    throw UsageError(
        "{} {}, but the master address is missing: --master_addr, or environment variable "
        "MASTER_ADDR, must be the address of node 0, where rank 0 runs",
        who, nodes);
  Placement placement;
  placement.scheduler = by.scheduler;
  placement.master_addr = by.master_addr;
  placement.master_port = by.master_port;
  placement.num_ranks = by.ranks_per_node;
  placement.min_nodes = by.min_nodes;
  if (hosts.empty()) {
    placement.node_ranks = {.node_rank = node, .num_nodes = by.num_nodes};
  } else {
    placement.slots = hosts[static_cast<size_t>(node)].slots;
    placement.node_ranks = node_ranks_of(hosts, node);
  }
  if (flags.launcher) find_backend(*flags.launcher);
  note_unused(flags, fmt::format("{} each node", who), placement);
  return placement;
}

Placement place_single_node(const HostOptions& flags, const std::vector<HostSlots>& hosts) {
  if (flags.node_rank.value_or(0) != 0)
    throw UsageError("--node_rank {}: the hostfile and the flags select only host 0",
                     *flags.node_rank);
  Placement placement;
  placement.slots = hosts[0].slots;
  placement.node_ranks = node_ranks_of(hosts, 0);
  note_unused_on_one_node(flags, placement);
  return placement;
}

Placement place_by_agents(const LaunchOptions& options, const std::vector<HostSlots>& hosts,
                          bool has_pdsh) {
  const HostOptions& flags = options.hosts;
  Placement placement;
  const std::string backend = flags.launcher.value_or(has_pdsh ? "pdsh" : "ssh");
  if (!flags.launcher && !has_pdsh)
    placement.notes.emplace_back(
        "pdsh is not installed: hosts are reached by ssh (--launcher ssh)");
  if (flags.node_rank)
    placement.notes.push_back(fmt::format(
        "--node_rank {} has no effect: without --no_ssh the launcher assigns node ranks",
        *flags.node_rank));
  if (flags.no_ssh_check)
    placement.notes.emplace_back(
        "--no_ssh_check has no effect: hosts are not checked before their agents are started");
  placement.cluster = {.hosts = hosts,
                       .backend = &find_backend(backend),
                       .launcher_args = shell_split(flags.launcher_args, "--launcher_args")};
  return placement;
}

std::optional<std::string> get_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool is_installed(const std::string& tool) {
  try {
    find_program(tool, "/nonexistent", get_variable("PATH").value_or(""));
  } catch (const ProgramError&) {
    return false;
  }
  return true;
}

std::vector<HostEntry> load_hostfile(const HostOptions& flags) {
  if (!flags.hostfile && !std::filesystem::exists(kDefaultHostfile)) return {};
  return read_hostfile(flags.hostfile.value_or(kDefaultHostfile));
}

void fill_cluster_plan(Placement& placement, const LaunchOptions& options) {
  ClusterPlan& plan = *placement.cluster;
  const Variables own = process_environment();
  if (plan.backend == &local_backend()) {
    const Join here = make_join_offer(options, placement);
    plan.hosts[0].host = here.name;
    plan.hosts[0].slots = first_slots(here.num_ranks);
  }
  plan.environment =
      forwarded_environment(own, get_variable("HOME"), std::filesystem::current_path());
  for (const std::string& name : withheld_secrets(own))
    placement.notes.push_back(
        fmt::format("{} is not forwarded to the hosts: its name looks like a secret; a line in {} "
                    "forwards it, unencrypted",
                    shortened(name), kEnvironmentFile));
  plan.zeroth = std::filesystem::read_symlink("/proc/self/exe").string();
  plan.pdsh_ssh_args = get_variable("PDSH_SSH_ARGS_APPEND").value_or("");
  if (get_variable("DS_ACCELERATOR") != "cpu") plan.gpus_per_node = options.num_ranks;
}

Placement place_fixed(const LaunchOptions& options, const PlacementInputs& inputs) {
  const HostOptions& flags = options.hosts;
  const bool has_hostfile = !inputs.hostfile.empty();
  std::vector<HostSlots> hosts;
  if (has_hostfile) hosts = choose_hosts(inputs.hostfile, options);
  std::optional<SchedulerNode> scheduled;
  if (!flags.no_ssh)
    scheduled = find_scheduler_node(inputs.variables, flags.num_nodes, has_hostfile,
                                    inputs.is_this_machine);
  if (scheduled && scheduled->num_nodes > 1) return place_by_scheduler(options, hosts, *scheduled);
  if (!has_hostfile) {
    Placement placement = place_without_hostfile(options);
    if (scheduled) placement.num_ranks = scheduled->ranks_per_node;
    const bool in_job =
        std::any_of(inputs.variables.begin(), inputs.variables.end(),
                    [](const auto& variable) { return variable.first == "JOB_COMPLETION_INDEX"; });
    if (!scheduled && !flags.no_ssh && in_job)
      placement.notes.emplace_back(
          "JOB_COMPLETION_INDEX is set, but this pod trains alone: with --num_nodes N and "
          "MASTER_ADDR the pods of an indexed Job become nodes of one run");
    return placement;
  }
  const bool here = hosts.size() == 1 && !flags.force_multi &&
                    !(options.elastic.hosts && !flags.no_ssh) &&
                    inputs.is_this_machine(hosts[0].host);
  if (here) return place_single_node(flags, hosts);
  if (flags.no_ssh) return place_manual(options, hosts);
  return place_by_agents(options, hosts, inputs.has_pdsh);
}

}  // namespace

Placement place_ranks(const LaunchOptions& options, const PlacementInputs& inputs) {
  check_not_nested(inputs.variables, options.hosts);
  Placement placement = place_fixed(options, inputs);
  place_elastic(placement, options);
  return placement;
}

std::vector<HostSlots> read_hosts(const LaunchOptions& options) {
  return choose_hosts(load_hostfile(options.hosts), options);
}

Placement find_placement(const LaunchOptions& options) {
  Placement placement = place_ranks(options, {.hostfile = load_hostfile(options.hosts),
                                              .is_this_machine = is_this_machine,
                                              .has_pdsh = is_installed("pdsh"),
                                              .variables = process_environment()});
  if (placement.cluster) fill_cluster_plan(placement, options);
  return placement;
}

NodeRanks with_num_ranks(const NodeRanks& node_ranks, int num_ranks) {
  if (node_ranks.world_size > 0) return node_ranks;
  if (node_ranks.num_nodes > std::numeric_limits<int>::max() / num_ranks)
    throw UsageError("{} nodes with {} ranks each: too many", node_ranks.num_nodes, num_ranks);
  NodeRanks whole = node_ranks;
  whole.first_rank = node_ranks.node_rank * num_ranks;
  whole.world_size = node_ranks.num_nodes * num_ranks;
  return whole;
}

AgentLaunchRequest make_agent_request(const LaunchOptions& options, const ClusterPlan& plan) {
  AgentLaunchRequest request;
  request.hosts = plan.hosts;
  request.zeroth = plan.zeroth;
  request.launcher_args = plan.launcher_args;
  request.ssh_port = options.hosts.ssh_port;
  request.pdsh_ssh_args = plan.pdsh_ssh_args;
  request.gpus_per_node = plan.gpus_per_node;
  return request;
}

}  // namespace zeroth::launcher
