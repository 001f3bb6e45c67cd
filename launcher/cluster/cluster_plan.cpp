#include "launcher/cluster/cluster_plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <string_view>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/backends/scheduler_node.h"
#include "launcher/backends/shell_words.h"
#include "launcher/cluster/join_run.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/local_addresses.h"

namespace zeroth::launcher {
namespace {

void note_unused(Placement& placement, bool given, std::string_view flag, std::string_view reason) {
  if (given) placement.notes.push_back(fmt::format("{} has no effect: {}", flag, reason));
}

// Notes flags for reaching nodes if the launcher reaches none. Reports a wrong name of --launcher.
void note_unused(Placement& placement, const HostOptions& flags, std::string_view reason) {
  if (flags.launcher) find_backend(*flags.launcher);
  note_unused(placement, flags.ssh_port.has_value(), "--ssh_port", reason);
  note_unused(placement, flags.launcher.has_value(), "--launcher", reason);
  note_unused(placement, !flags.launcher_args.empty(), "--launcher_args", reason);
  note_unused(placement, flags.no_ssh_check, "--no_ssh_check", reason);
}

void note_unused_on_one_node(Placement& placement, const HostOptions& flags) {
  constexpr std::string_view kReason = "one machine needs no ssh";
  note_unused(placement, flags.no_ssh, "--no_ssh", kReason);
  note_unused(placement, flags.node_rank.has_value(), "--node_rank 0",
              "this machine is the only host");
  note_unused(placement, flags, kReason);
}

void check_node_rank(int node_rank, int num_nodes, std::string_view who) {
  if (node_rank >= num_nodes)
    throw UsageError("--node_rank {}: {} hosts 0 to {}", node_rank, who, num_nodes - 1);
}

// Places the ranks of one node. `hosts` are the hostfile's; without a hostfile they are empty, and
// with_num_ranks() completes the placement.
Placement place_node(const std::vector<HostSlots>& hosts, int node, int num_nodes) {
  Placement placement;
  placement.node_ranks = {.node_rank = node, .num_nodes = num_nodes};
  if (hosts.empty()) return placement;
  placement.slots = hosts[static_cast<size_t>(node)].slots;
  placement.node_ranks.first_rank = first_rank_of(hosts, node);
  placement.node_ranks.world_size = count_ranks(hosts);
  return placement;
}

// Places ranks if a person starts zeroth on each host: each of `hosts`, the hostfile's or, if they
// are empty, each of --num_nodes machines, which have equally many ranks.
Placement place_manual(const LaunchOptions& options, const std::vector<HostSlots>& hosts) {
  const HostOptions& flags = options.hosts;
  const bool has_hostfile = !hosts.empty();
  const int num_nodes = has_hostfile ? static_cast<int>(hosts.size()) : *flags.num_nodes;
  if (!flags.node_rank)
    throw UsageError(
        "--no_ssh needs --node_rank: it says which of the {}{} this machine is (0 to {}{})",
        pluralize(num_nodes, "host"), has_hostfile ? " of the hostfile" : "", num_nodes - 1,
        has_hostfile ? ", in the order of the file" : "");
  check_node_rank(*flags.node_rank, num_nodes,
                  has_hostfile ? "the hostfile and the flags select"
                               : fmt::format("--num_nodes {} selects", num_nodes));
  if (!options.master_addr && num_nodes > 1)
    throw UsageError(
        "--no_ssh needs --master_addr: the address of host 0{}, at which the other hosts reach "
        "rank 0",
        has_hostfile ? ", " + hosts[0].host : "");
  Placement placement = place_node(hosts, *flags.node_rank, num_nodes);
  note_unused(placement, flags, "with --no_ssh no host is contacted");
  return placement;
}

Placement place_without_hostfile(const LaunchOptions& options) {
  const HostOptions& flags = options.hosts;
  if (flags.no_ssh && flags.num_nodes.value_or(1) > 1) return place_manual(options, {});
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
  note_unused_on_one_node(placement, flags);
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
  Placement placement = place_node(hosts, node, by.num_nodes);
  placement.scheduler = by.scheduler;
  placement.master_addr = by.master_addr;
  placement.master_port = by.master_port;
  placement.num_ranks = by.ranks_per_node;
  placement.min_nodes = by.min_nodes;
  note_unused(placement, flags, fmt::format("{} each node", who));
  return placement;
}

Placement place_single_node(const HostOptions& flags, const std::vector<HostSlots>& hosts) {
  if (flags.node_rank.value_or(0) != 0)
    throw UsageError("--node_rank {}: the hostfile and the flags select only host 0",
                     *flags.node_rank);
  Placement placement = place_node(hosts, 0, 1);
  note_unused_on_one_node(placement, flags);
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
  placement.cluster = {
      .agents = {.hosts = hosts,
                 .launcher_args = shell_split(flags.launcher_args, "--launcher_args"),
                 .ssh_port = flags.ssh_port},
      .backend = &find_backend(backend)};
  return placement;
}

bool is_installed(const std::string& tool) {
  try {
    find_program(tool, "/nonexistent", read_variable("PATH").value_or(""));
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
    plan.agents.hosts[0].host = here.name;
    plan.agents.hosts[0].slots = first_slots(here.num_ranks);
  }
  plan.environment =
      forwarded_environment(own, read_variable("HOME"), std::filesystem::current_path());
  for (const std::string& name : withheld_secrets(own))
    placement.notes.push_back(
        fmt::format("{} is not forwarded to the hosts: its name looks like a secret; a line in {} "
                    "forwards it, unencrypted",
                    shortened(name), kEnvironmentFile));
  plan.agents.zeroth = std::filesystem::read_symlink("/proc/self/exe").string();
  plan.agents.pdsh_ssh_args = read_variable("PDSH_SSH_ARGS_APPEND").value_or("");
  if (read_variable("DS_ACCELERATOR") != "cpu") plan.agents.gpus_per_node = options.num_ranks;
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
    const bool in_job = find_variable(inputs.variables, "JOB_COMPLETION_INDEX") != nullptr;
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

// Throws UsageError for other backends: mpirun and srun end all agents when one ends, and one pdsh
// serves all hosts.
void require_ssh(ClusterPlan& plan, const LaunchOptions& options, std::string_view flag) {
  if (options.hosts.launcher && *options.hosts.launcher != "ssh")
    throw UsageError(
        "{} needs a separate ssh for each host, but --launcher {} starts all hosts at once; under "
        "mpirun or srun start zeroth itself on each node (docs/clusters.md)",
        flag, *options.hosts.launcher);
  plan.backend = &find_backend("ssh");
}

int max_nodes_of(const NodeRange& range, int num_nodes) {
  if (range.max != 0) return range.max;
  if (range.min > num_nodes)
    throw UsageError(
        "--min_elastic_nodes {}: there are {} hosts, and --max_elastic_nodes is not "
        "given",
        range.min, num_nodes);
  return num_nodes;
}

void place_restarts(Placement& placement, const LaunchOptions& options) {
  const std::string flag =
      fmt::format("--max-restarts {}", options.elastic.effective_max_restarts());
  if (placement.cluster) {
    const int num_nodes = static_cast<int>(placement.cluster->agents.hosts.size());
    placement.cluster->elastic = NodeRange{num_nodes, num_nodes};
    return require_ssh(*placement.cluster, options, flag);
  }
  if (placement.node_ranks.num_nodes > 1)
    throw UsageError(
        "{}: zeroth runs on each of {} nodes, which can restart together only with --elastic "
        "MIN:MAX",
        flag, placement.node_ranks.num_nodes);
}

std::string join_endpoint(const std::string& address, int port) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  return fmt::format("{}:{}", is_ipv6 ? fmt::format("[{}]", address) : address, port);
}

// Makes this machine the launcher: zeroth was started on each node, or here alone.
void place_launcher_here(Placement& placement, const LaunchOptions& options) {
  const NodeRanks& node_ranks = placement.node_ranks;
  const bool alone = node_ranks.num_nodes == 1;
  if (alone && !options.elastic.join_port)
    throw UsageError(
        "--elastic: without a hostfile, hosts can only join by themselves: pass --join-port PORT");
  const auto address = options.master_addr ? options.master_addr : placement.master_addr;
  const int port = options.elastic.join_port.value_or(
      options.master_port.value_or(placement.master_port.value_or(kDefaultMasterPort)));
  if (node_ranks.node_rank > 0) {
    placement.join = join_endpoint(*address, port);
    return;
  }
  ClusterPlan plan{.agents = {.hosts = {{"", placement.slots}}}, .backend = &local_backend()};
  plan.elastic = NodeRange{options.elastic.hosts->min,
                           max_nodes_of(*options.elastic.hosts, node_ranks.num_nodes)};
  plan.join_port = port;
  plan.num_joiners = placement.min_nodes.value_or(node_ranks.num_nodes) - 1;
  plan.join_address = address;
  placement.cluster = std::move(plan);
}

// Adapts the placement of an elastic run.
void place_elastic(Placement& placement, const LaunchOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (!elastic.hosts && elastic.effective_max_restarts() == 0) return;
  if (!elastic.hosts) return place_restarts(placement, options);
  if (!placement.cluster) return place_launcher_here(placement, options);
  ClusterPlan& plan = *placement.cluster;
  plan.elastic = NodeRange{
      elastic.hosts->min, max_nodes_of(*elastic.hosts, static_cast<int>(plan.agents.hosts.size()))};
  plan.join_port = elastic.join_port;
  plan.join_address = options.master_addr;
  plan.watches_hostfile = true;
  require_ssh(plan, options, "--elastic");
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

}  // namespace zeroth::launcher
