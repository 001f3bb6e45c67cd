#include "launcher/cluster/elastic_plan.h"

#include <fmt/format.h>

#include <string_view>

namespace zeroth::launcher {
namespace {

// mpirun and srun end all agents when one ends, and one pdsh serves all hosts.
void reach_by_ssh(ClusterPlan& plan, const LaunchOptions& options, std::string_view flag) {
  if (options.hosts.launcher && *options.hosts.launcher != "ssh")
    throw UsageError(
        "{}: it reaches each host by an ssh of its own, --launcher {} all at once; under mpirun or "
        "srun start zeroth itself on each node (docs/clusters.md)",
        flag, *options.hosts.launcher);
  plan.backend = &find_backend("ssh");
}

int limit_of(const HostRange& range, int num_hosts) {
  if (range.max != 0) return range.max;
  if (range.min > num_hosts)
    throw UsageError(
        "--min_elastic_nodes {}: there are {} hosts, and --max_elastic_nodes is not "
        "given",
        range.min, num_hosts);
  return num_hosts;
}

void restart_only(Placement& placement, const LaunchOptions& options) {
  const std::string flag = fmt::format("--max-restarts {}", options.elastic.restarts());
  if (placement.cluster) {
    const int num_hosts = static_cast<int>(placement.cluster->hosts.size());
    placement.cluster->elastic = HostRange{num_hosts, num_hosts};
    return reach_by_ssh(*placement.cluster, options, flag);
  }
  if (placement.part.num_hosts > 1)
    throw UsageError(
        "{}: zeroth runs on each of {} nodes, which start again together only with "
        "--elastic MIN:MAX",
        flag, placement.part.num_hosts);
}

std::string joined(const std::string& address, int port) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  return fmt::format("{}:{}", is_ipv6 ? fmt::format("[{}]", address) : address, port);
}

// zeroth was started on each node, or here alone.
void begin_here(Placement& placement, const LaunchOptions& options) {
  const HostPart& part = placement.part;
  const bool alone = part.num_hosts == 1;
  if (alone && !options.elastic.join_port)
    throw UsageError(
        "--elastic: without a hostfile no host can come but by itself: --join-port PORT lets it "
        "in");
  const auto address = options.master_addr ? options.master_addr : placement.master_addr;
  const int port = options.elastic.join_port.value_or(
      options.master_port.value_or(placement.master_port.value_or(kPortByHand)));
  if (part.host > 0) {
    placement.join = joined(*address, port);
    return;
  }
  ClusterPlan plan{.hosts = {{"", placement.slots}}, .backend = &own_backend()};
  plan.elastic =
      HostRange{options.elastic.hosts->min, limit_of(*options.elastic.hosts, part.num_hosts)};
  plan.join_port = port;
  plan.joiners = placement.min_nodes.value_or(part.num_hosts) - 1;
  plan.join_address = address;
  placement.cluster = std::move(plan);
}

}  // namespace

void make_elastic(Placement& placement, const LaunchOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (!elastic.hosts && elastic.restarts() == 0) return;
  if (!elastic.hosts) return restart_only(placement, options);
  if (!placement.cluster) return begin_here(placement, options);
  ClusterPlan& plan = *placement.cluster;
  plan.elastic =
      HostRange{elastic.hosts->min, limit_of(*elastic.hosts, static_cast<int>(plan.hosts.size()))};
  plan.join_port = elastic.join_port;
  plan.join_address = options.master_addr;
  plan.reads_hostfile = true;
  reach_by_ssh(plan, options, "--elastic");
}

}  // namespace zeroth::launcher
