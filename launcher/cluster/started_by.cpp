#include "launcher/cluster/started_by.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/node_list.h"
#include "base/port_text.h"
#include "base/printable.h"
#include "base/slurm_step.h"
#include "base/units.h"
#include "base/usage_error.h"

namespace zeroth::launcher {
namespace {

constexpr int64_t kMostNodes = 65'536, kMostRanksOfNode = 1024, kMostPort = 65'535;
constexpr int64_t kMostJob = UINT32_MAX;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(std::string_view name) const {
    const auto found = std::find_if(variables_.begin(), variables_.end(),
                                    [&](const auto& pair) { return pair.first == name; });
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  bool has(std::string_view name) const { return text(name).has_value(); }

  std::optional<int64_t> number(std::string_view name, int64_t least, int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_number<int64_t>(*value);
    if (number && *number >= least && *number <= most) return number;
    if (const std::string_view why = why_no_port(*value); !why.empty())
      throw UsageError("environment variable {} {}", quote(name), why);
    throw UsageError("environment variable {} is not a number of {} to {}", quote(name), least,
                     most);
  }

  // "RANK=3"
  std::string quote(std::string_view name) const {
    return fmt::format("{}={}", name, shortened(text(name).value_or("")));
  }

 private:
  const Variables& variables_;
};

std::optional<int> to_int(std::optional<int64_t> number) {
  if (!number) return std::nullopt;
  return static_cast<int>(*number);
}

// What one kind of MPI calls what it says.
struct MpiWords {
  std::string_view starter, rank, size, one_per_node;
  std::string_view local_size = {};
};

constexpr MpiWords kMpi[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun --map-by ppr:1:node",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PALS", "PMI_RANK", "PMI_SIZE", "mpiexec --ppn 1", "PMI_LOCAL_SIZE"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "mpirun -ppn 1", "MPI_LOCALNRANKS"},
};

UsageError several_on_a_node(std::string_view starter, int64_t tasks, std::string_view where,
                             std::string_view one_per_node) {
  return UsageError(
      "{} has started {} {}: one is needed on each node ({} zeroth ...), which starts the ranks "
      "there; or start the program itself once for each rank, without zeroth. --no_ssh makes of "
      "each a run of its own",
      starter, counted(tasks, "zeroth"), where, one_per_node);
}

void check_below(const Reader& reader, std::string_view rank, std::string_view size,
                 const StartedBy& by) {
  if (by.node >= by.num_nodes)
    throw UsageError(
        "environment variable {} must be below {}", reader.quote(rank),
        reader.has(size) ? reader.quote(size) : fmt::format("{}, which is not set", size));
}

std::optional<StartedBy> by_mpi(const Reader& reader) {
  for (const MpiWords& words : kMpi) {
    const auto local_size = reader.number(words.local_size, 1, kMostRanksOfNode);
    if (!local_size || !reader.has(words.rank)) continue;
    StartedBy by{.starter = std::string(words.starter)};
    by.node = *to_int(reader.number(words.rank, 0, kMostNodes * kMostRanksOfNode));
    by.num_nodes = to_int(reader.number(words.size, 1, kMostNodes * kMostRanksOfNode)).value_or(1);
    check_below(reader, words.rank, words.size, by);
    if (*local_size > 1)
      throw several_on_a_node(words.starter, by.num_nodes,
                              fmt::format("({} here)", reader.quote(words.local_size)),
                              words.one_per_node);
    return by;
  }
  return std::nullopt;
}

bool is_step_of_slurm(const Reader& reader) {
  const auto step = reader.number("SLURM_STEP_ID", 0, kMostJob);
  return step && is_step_of_srun(*step) && reader.has("SLURM_STEP_NUM_TASKS") &&
         reader.has("SLURM_STEP_NUM_NODES");
}

std::optional<StartedBy> by_slurm(const Reader& reader) {
  if (!is_step_of_slurm(reader)) return std::nullopt;
  StartedBy by{.starter = "Slurm"};
  by.node = to_int(reader.number("SLURM_NODEID", 0, kMostNodes)).value_or(0);
  by.num_nodes = *to_int(reader.number("SLURM_STEP_NUM_NODES", 1, kMostNodes));
  check_below(reader, "SLURM_NODEID", "SLURM_STEP_NUM_NODES", by);
  const auto tasks = *reader.number("SLURM_STEP_NUM_TASKS", 1, kMostNodes * kMostRanksOfNode);
  if (tasks != by.num_nodes)
    throw several_on_a_node(by.starter, tasks, "on " + counted(by.num_nodes, "node"),
                            "srun --ntasks-per-node=1");
  return by;
}

// "3", or "1:3" of an elastic job.
HostRange nodes_of_kubeflow(const Reader& reader) {
  const std::string text = *reader.text("PET_NNODES");
  const size_t colon = text.find(':');
  const auto min = parse_number<int>(text.substr(0, colon));
  const auto max = colon == std::string::npos ? min : parse_number<int>(text.substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min || *max > kMostNodes)
    throw UsageError(
        "environment variable {} is neither a number of nodes from 1 to {} nor MIN:MAX, as 1:4",
        reader.quote("PET_NNODES"), kMostNodes);
  return {*min, *max};
}

struct Endpoint {
  std::string host;
  std::optional<int> port = {};
};

// "job-worker-0:23456", "[fd00::1]:23456", or an address without a port.
std::optional<Endpoint> endpoint_of_kubeflow(const Reader& reader) {
  constexpr std::string_view kName = "PET_RDZV_ENDPOINT";
  const auto text = reader.text(kName);
  if (!text) return std::nullopt;
  Endpoint endpoint{*text};
  std::string rest;
  const size_t close = text->find(']');
  if (text->front() == '[' && close != std::string::npos) {
    endpoint.host = text->substr(1, close - 1);
    rest = text->substr(close + 1);
  } else if (std::count(text->begin(), text->end(), ':') == 1) {  // more: an IPv6 address alone
    endpoint.host = text->substr(0, text->find(':'));
    rest = text->substr(text->find(':'));
  }
  if (!rest.empty() && rest.front() == ':') endpoint.port = parse_number<int>(rest.substr(1));
  const bool is_port = endpoint.port && *endpoint.port >= 1 && *endpoint.port <= kMostPort;
  if (endpoint.host.empty() || (!rest.empty() && !is_port))
    throw UsageError("environment variable {} is no HOST:PORT", reader.quote(kName));
  return endpoint;
}

// Whether nodes get their numbers by meeting, rather than by the pod's own.
bool meets_for_numbers(const Reader& reader) {
  return !reader.has("PET_NODE_RANK") && reader.has("PET_RDZV_ENDPOINT");
}

void find_master_of_kubeflow(const Reader& reader, const std::optional<Endpoint>& endpoint,
                             StartedBy& by) {
  by.master_addr = reader.text("PET_MASTER_ADDR");
  by.master_port = to_int(reader.number("PET_MASTER_PORT", 1, kMostPort));
  if (!endpoint || by.master_addr) return;
  const std::string backend = reader.text("PET_RDZV_BACKEND").value_or("c10d");
  if (backend != "c10d" && backend != "static") {
    if (reader.has("MASTER_ADDR")) return;
    throw UsageError(
        "environment variable {} names a server of {}, which is no node of the run: MASTER_ADDR, "
        "or --master_addr, must be the address of node 0",
        reader.quote("PET_RDZV_ENDPOINT"), shortened(backend));
  }
  by.master_addr = endpoint->host;
  if (!by.master_port) by.master_port = endpoint->port;
}

std::optional<StartedBy> by_kubeflow(
    const Reader& reader, const std::function<bool(const std::string&)>& is_this_machine) {
  if (!reader.has("PET_NNODES")) return std::nullopt;
  StartedBy by{.starter = "Kubeflow"};
  const HostRange nodes = nodes_of_kubeflow(reader);
  const auto endpoint = endpoint_of_kubeflow(reader);
  by.num_nodes = nodes.max;
  if (nodes.min < nodes.max) by.min_nodes = nodes.min;
  find_master_of_kubeflow(reader, endpoint, by);
  if (by.num_nodes > 1 && meets_for_numbers(reader)) {
    const std::string host = by.master_addr.value_or(endpoint->host);
    const bool is_first =  // a pod knows its name before the cluster's DNS does
        is_this_machine &&
        (is_this_machine(host) || is_this_machine(host.substr(0, host.find('.'))));
    by.node = is_first ? 0 : 1;
  } else if (by.num_nodes > 1 && !reader.has("PET_NODE_RANK")) {
    throw UsageError(
        "environment variable {} says how many nodes there are, but neither PET_NODE_RANK nor "
        "PET_RDZV_ENDPOINT which of them this is",
        reader.quote("PET_NNODES"));
  } else {
    by.node = to_int(reader.number("PET_NODE_RANK", 0, kMostNodes)).value_or(0);
  }
  check_below(reader, "PET_NODE_RANK", "PET_NNODES", by);
  const std::string ranks = reader.text("PET_NPROC_PER_NODE").value_or("auto");
  if (ranks == "auto" || ranks == "gpu" || ranks == "cpu") return by;  // as without a word
  by.ranks_per_node = to_int(reader.number("PET_NPROC_PER_NODE", 1, kMostRanksOfNode));
  return by;
}

std::optional<StartedBy> by_job_index(const Reader& reader, std::optional<int> num_nodes) {
  constexpr std::string_view kIndex = "JOB_COMPLETION_INDEX";
  if (!reader.has(kIndex) || (!num_nodes && !reader.has("MASTER_ADDR"))) return std::nullopt;
  StartedBy by{.starter = "Kubernetes"};
  by.node = *to_int(reader.number(kIndex, 0, kMostNodes));
  if (!num_nodes)
    throw UsageError(
        "environment variable {} says which pod of a Job this is, and MASTER_ADDR that they belong "
        "together: --num_nodes N must say how many there are",
        reader.quote(kIndex));
  by.num_nodes = *num_nodes;
  if (by.node >= by.num_nodes)
    throw UsageError("--num_nodes {}: environment variable {} must be below it", *num_nodes,
                     reader.quote(kIndex));
  return by;
}

bool is_rank_already(const Reader& reader) {
  return reader.has("LOCAL_RANK") || (reader.has("RANK") && !reader.has("PET_NODE_RANK"));
}

void meet_in_slurm_job(const Reader& reader, StartedBy& by) {
  const bool of_step = by.starter == "Slurm" && reader.has("SLURM_STEP_NODELIST");
  const char* const list = of_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (const auto nodes = reader.text(list)) {
    try {
      by.master_addr = expand_node_list(*nodes).front();
    } catch (const Error& error) {
      throw UsageError("environment variable {}: {}", list, error.what());
    }
  }
  const auto job = reader.number("SLURM_JOB_ID", 0, kMostJob);
  const int64_t step = of_step ? reader.number("SLURM_STEP_ID", 0, kMostJob).value_or(0) : 0;
  if (job) by.master_port = port_of_step(*job, step);
}

// Who has made this process a rank.
std::string_view maker_of_rank(const Reader& reader) {
  if (reader.has("ZEROTH_LAUNCH_TIME")) return "zeroth";
  if (reader.has("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (reader.has("ACCELERATE_MIXED_PRECISION")) return "accelerate launch";
  return "another launcher";
}

void refuse_rank(const Reader& reader, const HostOptions& flags) {
  constexpr int64_t kMost = kMostNodes * kMostRanksOfNode;
  const int64_t size = reader.number("WORLD_SIZE", 1, kMost).value_or(1);
  if (size == 1) return;  // alone, or a variable that is left over
  const auto local = reader.number("LOCAL_RANK", 0, kMost);
  const int64_t rank = reader.number("RANK", 0, kMost).value_or(local.value_or(0));
  auto on_node = reader.number("LOCAL_SIZE", 1, kMost);
  if (!on_node) on_node = reader.number("LOCAL_WORLD_SIZE", 1, kMost);
  const bool alone_here = on_node ? *on_node == 1 : !local;
  if (alone_here && flags.no_ssh && flags.node_rank && flags.num_nodes.value_or(1) > 1) return;
  std::vector<std::string> words, unset;
  for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    if (!reader.has(name)) continue;
    words.push_back(reader.quote(name));
    unset.push_back(fmt::format("-u {}", name));
  }
  throw UsageError(
      "zeroth runs as rank {} of {} of {} already ({}): start the program itself there, or zeroth "
      "alone; env {} zeroth ... makes of each a run of its own",
      rank, size, maker_of_rank(reader), fmt::join(words, " "), fmt::join(unset, " "));
}

// Those that do not say how many ranks a node has.
constexpr MpiWords kWithoutNodes[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun --map-by ppr:1:node"},
    {"an MPI", "PMI_RANK", "PMI_SIZE", "mpirun -ppn 1"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "mpirun -ppn 1"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun -r 1"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "flux run -N NODES"},
};

}  // namespace

void refuse_nested(const Variables& variables, const HostOptions& flags) {
  const Reader reader(variables);
  if (is_rank_already(reader)) return refuse_rank(reader, flags);
  if (flags.no_ssh || is_step_of_slurm(reader) || by_mpi(reader)) return;
  for (const MpiWords& words : kWithoutNodes) {
    if (!reader.has(words.rank) || !reader.has(words.size)) continue;
    const int64_t size = *reader.number(words.size, 1, kMostNodes * kMostRanksOfNode);
    if (size == 1) continue;
    throw several_on_a_node(words.starter, size,
                            fmt::format("({} here), and not said how many of them are on this node",
                                        reader.quote(words.rank)),
                            words.one_per_node);
  }
}

std::vector<std::string> take_elastic_words(const Variables& variables, ElasticOptions& options) {
  const Reader reader(variables);
  if (is_rank_already(reader) || !reader.has("PET_NNODES")) return {};
  const HostRange nodes = nodes_of_kubeflow(reader);
  const auto restarts = to_int(reader.number("PET_MAX_RESTARTS", 0, 1'000'000));
  const bool is_range = nodes.max > 1 && (nodes.min < nodes.max || meets_for_numbers(reader));
  std::vector<std::string> notes;
  if (!options.hosts && is_range) {
    options.hosts = nodes;
    notes.push_back(
        fmt::format("{}: as --elastic {}:{}", reader.quote("PET_NNODES"), nodes.min, nodes.max));
  }
  if (!restarts || options.max_restarts) return notes;
  if (options.hosts || nodes.max == 1) {
    options.max_restarts = restarts;
  } else if (*restarts > 0) {
    notes.push_back(fmt::format(
        "{} changes nothing: nodes start again together only with --elastic {}:{}, for which all "
        "need the same ZEROTH_SECRET",
        reader.quote("PET_MAX_RESTARTS"), nodes.max, nodes.max));
  }
  return notes;
}

std::optional<StartedBy> started_by(
    const Variables& variables, std::optional<int> num_nodes, bool has_hostfile,
    const std::function<bool(const std::string& host)>& is_this_machine) {
  const Reader reader(variables);
  if (is_rank_already(reader)) return std::nullopt;
  auto by = by_mpi(reader);
  const bool mpi = by.has_value();
  if (!by) by = by_slurm(reader);
  const bool in_slurm = mpi || by.has_value();
  if (!by) by = by_kubeflow(reader, is_this_machine);
  if (!by && !has_hostfile) by = by_job_index(reader, num_nodes);
  if (!by || (by->num_nodes == 1 && !by->ranks_per_node)) return std::nullopt;
  if (in_slurm) meet_in_slurm_job(reader, *by);
  if (reader.has("MASTER_ADDR")) by->master_addr = reader.text("MASTER_ADDR");
  if (const auto port = to_int(reader.number("MASTER_PORT", 1, kMostPort))) by->master_port = port;
  return by;
}

}  // namespace zeroth::launcher
