#include "launcher/cluster/place_elastic.h"

#include <fmt/format.h>

#include <string_view>

namespace zeroth::launcher {
namespace {

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
    const int num_nodes = static_cast<int>(placement.cluster->hosts.size());
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
  ClusterPlan plan{.hosts = {{"", placement.slots}}, .backend = &local_backend()};
  plan.elastic = NodeRange{options.elastic.hosts->min,
                           max_nodes_of(*options.elastic.hosts, node_ranks.num_nodes)};
  plan.join_port = port;
  plan.num_joiners = placement.min_nodes.value_or(node_ranks.num_nodes) - 1;
  plan.join_address = address;
  placement.cluster = std::move(plan);
}

}  // namespace

void place_elastic(Placement& placement, const LaunchOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (!elastic.hosts && elastic.effective_max_restarts() == 0) return;
  if (!elastic.hosts) return place_restarts(placement, options);
  if (!placement.cluster) return place_launcher_here(placement, options);
  ClusterPlan& plan = *placement.cluster;
  plan.elastic = NodeRange{elastic.hosts->min,
                           max_nodes_of(*elastic.hosts, static_cast<int>(plan.hosts.size()))};
  plan.join_port = elastic.join_port;
  plan.join_address = options.master_addr;
  plan.watches_hostfile = true;
  require_ssh(plan, options, "--elastic");
}

}  // namespace zeroth::launcher
