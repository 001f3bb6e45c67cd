#include "launcher/backends/scheduler_node.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/env_reader.h"
#include "base/error.h"
#include "base/scheduler_env.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxNodes = 65'536, kMaxRanksPerNode = 1024, kMaxRanks = kMaxNodes * kMaxRanksPerNode;

EnvReader reader_of(const Variables& variables) {
  const auto lookup = [&](const char* name) {
    const std::string* const value = find_variable(variables, name);
    return value == nullptr ? nullptr : value->c_str();
  };
  return EnvReader(lookup, EnvReader::RangeMessage::kBothLimits);
}

UsageError several_per_node_error(const SchedulerVariables& names, int tasks,
                                  std::string_view where) {
  return UsageError(
      "{} has started {} {}: start one on each node ({} zeroth ...), which starts the ranks there; "
      "or start the program itself once for each rank, without zeroth. --no_ssh makes each a "
      "separate run",
      names.launcher, pluralize(tasks, "zeroth"), where, names.one_per_node);
}

std::optional<SchedulerNode> find_mpi_node(const EnvReader& reader) {
  for (const SchedulerVariables& names : {kOpenMpi, kPals, kHydra}) {
    const auto local_size = reader.number(names.local_size, 1, kMaxRanksPerNode);
    if (!local_size || !reader.has(names.rank)) continue;
    SchedulerNode by{.scheduler = std::string(names.launcher)};
    by.node = *reader.number(names.rank, 0, kMaxRanks);
    by.num_nodes = reader.number(names.size, 1, kMaxRanks).value_or(1);
    check_rank_below_size(reader, names.rank, by.node, names.size, by.num_nodes);
    if (*local_size > 1)
      throw several_per_node_error(names, by.num_nodes,
                                   fmt::format("({} here)", reader.quote(names.local_size)));
    return by;
  }
  return std::nullopt;
}

bool is_slurm_step(const EnvReader& reader) {
  return is_srun_step(reader) && reader.has(kSlurm.size) && reader.has("SLURM_STEP_NUM_NODES");
}

std::optional<SchedulerNode> find_slurm_node(const EnvReader& reader) {
  if (!is_slurm_step(reader)) return std::nullopt;
  SchedulerNode by{.scheduler = std::string(kSlurm.launcher)};
  by.node = reader.number("SLURM_NODEID", 0, kMaxNodes).value_or(0);
  by.num_nodes = *reader.number("SLURM_STEP_NUM_NODES", 1, kMaxNodes);
  check_rank_below_size(reader, "SLURM_NODEID", by.node, "SLURM_STEP_NUM_NODES", by.num_nodes);
  const int tasks = *reader.number(kSlurm.size, 1, kMaxRanks);
  if (tasks != by.num_nodes)
    throw several_per_node_error(kSlurm, tasks, "on " + pluralize(by.num_nodes, "node"));
  return by;
}

// Parses "3", or "1:3" of an elastic job.
NodeRange kubeflow_nodes(const EnvReader& reader) {
  const auto nodes = parse_node_range(*reader.text("PET_NNODES"), kMaxNodes);
  if (!nodes || nodes->max < nodes->min)
    throw UsageError(
        "environment variable {} is neither a number of nodes from 1 to {} nor MIN:MAX, such as "
        "1:4",
        reader.quote("PET_NNODES"), kMaxNodes);
  return *nodes;
}

struct RendezvousEndpoint {
  std::string host;
  std::optional<int> port = {};
};

// Parses "job-worker-0:23456", "[fd00::1]:23456", or an address without a port.
std::optional<RendezvousEndpoint> kubeflow_endpoint(const EnvReader& reader) {
  constexpr const char* kName = "PET_RDZV_ENDPOINT";
  const auto text = reader.text(kName);
  if (!text) return std::nullopt;
  RendezvousEndpoint endpoint{*text};
  std::string rest;
  const size_t close = text->find(']');
  if (text->front() == '[' && close != std::string::npos) {
    endpoint.host = text->substr(1, close - 1);
    rest = text->substr(close + 1);
  } else if (std::count(text->begin(), text->end(), ':') == 1) {  // more: an IPv6 address only
    endpoint.host = text->substr(0, text->find(':'));
    rest = text->substr(text->find(':'));
  }
  if (!rest.empty() && rest.front() == ':') endpoint.port = parse_number<int>(rest.substr(1));
  const bool is_port = endpoint.port && *endpoint.port >= 1 && *endpoint.port <= kMaxPort;
  if (endpoint.host.empty() || (!rest.empty() && !is_port))
    throw UsageError("environment variable {} is not HOST:PORT", reader.quote(kName));
  return endpoint;
}

// Returns whether nodes get their ranks by rendezvous, instead of from the pod.
bool uses_rendezvous(const EnvReader& reader) {
  return !reader.has("PET_NODE_RANK") && reader.has("PET_RDZV_ENDPOINT");
}

void find_kubeflow_master(const EnvReader& reader,
                          const std::optional<RendezvousEndpoint>& endpoint, SchedulerNode& by) {
  by.master_addr = reader.text("PET_MASTER_ADDR");
  by.master_port = reader.number("PET_MASTER_PORT", 1, kMaxPort);
  if (!endpoint || by.master_addr) return;
  const std::string backend = reader.text("PET_RDZV_BACKEND").value_or("c10d");
  if (backend != "c10d" && backend != "static") {
    if (reader.has("MASTER_ADDR")) return;
    throw UsageError(
        "environment variable {} names a server of {}, which is not a node of the run: "
        "MASTER_ADDR, or --master_addr, must be the address of node 0",
        reader.quote("PET_RDZV_ENDPOINT"), shortened(backend));
  }
  by.master_addr = endpoint->host;
  if (!by.master_port) by.master_port = endpoint->port;
}

std::optional<SchedulerNode> find_kubeflow_node(
    const EnvReader& reader, const std::function<bool(const std::string&)>& is_this_machine) {
  if (!reader.has("PET_NNODES")) return std::nullopt;
  SchedulerNode by{.scheduler = "Kubeflow"};
  const NodeRange nodes = kubeflow_nodes(reader);
  const auto endpoint = kubeflow_endpoint(reader);
  by.num_nodes = nodes.max;
  if (nodes.min < nodes.max) by.min_nodes = nodes.min;
  find_kubeflow_master(reader, endpoint, by);
  if (by.num_nodes > 1 && uses_rendezvous(reader)) {
    const std::string host = by.master_addr.value_or(endpoint->host);
    const bool is_first =  // a pod knows its name before the cluster's DNS does
        is_this_machine &&
        (is_this_machine(host) || is_this_machine(host.substr(0, host.find('.'))));
    by.node = is_first ? 0 : 1;
  } else if (by.num_nodes > 1 && !reader.has("PET_NODE_RANK")) {
    throw UsageError(
        "environment variable {} sets the number of nodes, but neither PET_NODE_RANK nor "
        "PET_RDZV_ENDPOINT sets which of them this is",
        reader.quote("PET_NNODES"));
  } else {
    by.node = reader.number("PET_NODE_RANK", 0, kMaxNodes).value_or(0);
  }
  check_rank_below_size(reader, "PET_NODE_RANK", by.node, "PET_NNODES", by.num_nodes);
  const std::string ranks = reader.text("PET_NPROC_PER_NODE").value_or("auto");
  if (ranks == "auto" || ranks == "gpu" || ranks == "cpu") return by;  // as if it were unset
  by.ranks_per_node = reader.number("PET_NPROC_PER_NODE", 1, kMaxRanksPerNode);
  return by;
}

std::optional<SchedulerNode> find_indexed_job_node(const EnvReader& reader,
                                                   std::optional<int> num_nodes) {
  constexpr const char* kIndex = "JOB_COMPLETION_INDEX";
  if (!reader.has(kIndex) || (!num_nodes && !reader.has("MASTER_ADDR"))) return std::nullopt;
  SchedulerNode by{.scheduler = "Kubernetes"};
  by.node = *reader.number(kIndex, 0, kMaxNodes);
  if (!num_nodes)
    throw UsageError(
        "environment variable {} sets which pod of a Job this is, and MASTER_ADDR is set, but the "
        "number of nodes is missing: pass --num_nodes N",
        reader.quote(kIndex));
  by.num_nodes = *num_nodes;
  if (by.node >= by.num_nodes)
    throw UsageError("--num_nodes {}: environment variable {} must be below it", *num_nodes,
                     reader.quote(kIndex));
  return by;
}

bool is_rank_already(const EnvReader& reader) {
  return reader.has("LOCAL_RANK") || (reader.has("RANK") && !reader.has("PET_NODE_RANK"));
}

// Returns the launcher that has made this process a rank.
std::string_view rank_launcher(const EnvReader& reader) {
  if (reader.has("ZEROTH_LAUNCH_TIME")) return "zeroth";
  if (reader.has("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (reader.has("ACCELERATE_MIXED_PRECISION")) return "accelerate launch";
  return "another launcher";
}

void refuse_rank(const EnvReader& reader, const HostOptions& flags) {
  const int size = reader.number("WORLD_SIZE", 1, kMaxRanks).value_or(1);
  if (size == 1) return;  // single rank, or a leftover variable
  const auto local = reader.number("LOCAL_RANK", 0, kMaxRanks);
  const int rank = reader.number("RANK", 0, kMaxRanks).value_or(local.value_or(0));
  auto on_node = reader.number("LOCAL_SIZE", 1, kMaxRanks);
  if (!on_node) on_node = reader.number("LOCAL_WORLD_SIZE", 1, kMaxRanks);
  const bool alone_here = on_node ? *on_node == 1 : !local;
  if (alone_here && flags.no_ssh && flags.node_rank && flags.num_nodes.value_or(1) > 1) return;
  std::vector<std::string> names, unset;
  for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    if (!reader.has(name)) continue;
    names.push_back(reader.quote(name));
    unset.push_back(fmt::format("-u {}", name));
  }
  throw UsageError(
      "zeroth already runs as rank {} of {} of {} ({}): start the program itself there, or only "
      "zeroth; env {} zeroth ... makes each a separate run",
      rank, size, rank_launcher(reader), fmt::join(names, " "), fmt::join(unset, " "));
}

// MPI implementations that do not provide the number of ranks on a node.
constexpr SchedulerVariables kWithoutNodes[] = {
    kOpenMpi,
    {"an MPI", kHydra.rank, kHydra.size, "", "", kHydra.one_per_node},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "", "", "mpirun -ppn 1"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "", "", "jsrun -r 1"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "", "", "flux run -N NODES"},
};

}  // namespace

void check_not_nested(const Variables& variables, const HostOptions& flags) {
  rethrow_as_usage_error([&] {
    const EnvReader reader = reader_of(variables);
    if (is_rank_already(reader)) return refuse_rank(reader, flags);
    if (flags.no_ssh || is_slurm_step(reader) || find_mpi_node(reader)) return;
    for (const SchedulerVariables& names : kWithoutNodes) {
      if (!reader.has(names.rank) || !reader.has(names.size)) continue;
      const int size = *reader.number(names.size, 1, kMaxRanks);
      if (size == 1) continue;
      throw several_per_node_error(
          names, size,
          fmt::format("({} here), but has not set how many of them are on this node",
                      reader.quote(names.rank)));
    }
  });
}

std::vector<std::string> apply_kubeflow_elastic(const Variables& variables,
                                                ElasticOptions& options) {
  std::vector<std::string> notes;
  rethrow_as_usage_error([&] {
    const EnvReader reader = reader_of(variables);
    if (is_rank_already(reader) || !reader.has("PET_NNODES")) return;
    const NodeRange nodes = kubeflow_nodes(reader);
    const auto restarts = reader.number("PET_MAX_RESTARTS", 0, 1'000'000);
    const bool is_range = nodes.max > 1 && (nodes.min < nodes.max || uses_rendezvous(reader));
    if (!options.hosts && is_range) {
      options.hosts = nodes;
      notes.push_back(fmt::format("{}: treated as --elastic {}:{}", reader.quote("PET_NNODES"),
                                  nodes.min, nodes.max));
    }
    if (!restarts || options.max_restarts) return;
    if (options.hosts || nodes.max == 1) {
      options.max_restarts = restarts;
    } else if (*restarts > 0) {
      notes.push_back(fmt::format(
          "{} has no effect: nodes restart together only with --elastic {}:{}, for which all need "
          "the same ZEROTH_SECRET",
          reader.quote("PET_MAX_RESTARTS"), nodes.max, nodes.max));
    }
  });
  return notes;
}

std::optional<SchedulerNode> find_scheduler_node(
    const Variables& variables, std::optional<int> num_nodes, bool has_hostfile,
    const std::function<bool(const std::string& host)>& is_this_machine) {
  return rethrow_as_usage_error([&]() -> std::optional<SchedulerNode> {
    const EnvReader reader = reader_of(variables);
    if (is_rank_already(reader)) return std::nullopt;
    auto by = find_mpi_node(reader);
    const bool is_mpi = by.has_value();
    if (!by) by = find_slurm_node(reader);
    const bool in_slurm = by.has_value();
    if (!by) by = find_kubeflow_node(reader, is_this_machine);
    if (!by && !has_hostfile) by = find_indexed_job_node(reader, num_nodes);
    if (!by || (by->num_nodes == 1 && !by->ranks_per_node)) return std::nullopt;
    if (in_slurm) {
      by->master_addr = slurm_master_addr(reader, /*is_step=*/!is_mpi);
      by->master_port = slurm_master_port(reader, /*is_step=*/!is_mpi);
    }
    if (reader.has("MASTER_ADDR")) by->master_addr = reader.text("MASTER_ADDR");
    if (const auto port = reader.number("MASTER_PORT", 1, kMaxPort)) by->master_port = port;
    return by;
  });
}

}  // namespace zeroth::launcher
