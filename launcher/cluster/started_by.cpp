#include "launcher/cluster/started_by.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/node_list.h"
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
    if (!number || *number < least || *number > most)
      throw Error("environment variable {} is not a number of {} to {}", quote(name), least, most);
    return number;
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
  std::string_view starter, rank, size, local_size, one_per_node;
};

constexpr MpiWords kMpi[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "mpirun --map-by ppr:1:node"},
    {"PALS", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE", "mpiexec --ppn 1"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpirun -ppn 1"},
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
    throw Error("environment variable {} must be below {}", reader.quote(rank),
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

std::optional<StartedBy> by_kubeflow(const Reader& reader) {
  if (!reader.has("PET_NNODES")) return std::nullopt;
  StartedBy by{.starter = "Kubeflow"};
  by.num_nodes = *to_int(reader.number("PET_NNODES", 1, kMostNodes));
  by.node = to_int(reader.number("PET_NODE_RANK", 0, kMostNodes)).value_or(0);
  check_below(reader, "PET_NODE_RANK", "PET_NNODES", by);
  by.master_addr = reader.text("PET_MASTER_ADDR");
  by.master_port = to_int(reader.number("PET_MASTER_PORT", 1, kMostPort));
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
      throw Error("environment variable {}: {}", list, error.what());
    }
  }
  const auto job = reader.number("SLURM_JOB_ID", 0, kMostJob);
  const int64_t step = of_step ? reader.number("SLURM_STEP_ID", 0, kMostJob).value_or(0) : 0;
  if (job) by.master_port = port_of_step(*job, step);
}

}  // namespace

std::optional<StartedBy> started_by(const Variables& variables, std::optional<int> num_nodes,
                                    bool has_hostfile) {
  const Reader reader(variables);
  if (is_rank_already(reader)) return std::nullopt;
  auto by = by_mpi(reader);
  const bool mpi = by.has_value();
  if (!by) by = by_slurm(reader);
  const bool in_slurm = mpi || by.has_value();
  if (!by) by = by_kubeflow(reader);
  if (!by && !has_hostfile) by = by_job_index(reader, num_nodes);
  if (!by || (by->num_nodes == 1 && !by->ranks_per_node)) return std::nullopt;
  if (in_slurm) meet_in_slurm_job(reader, *by);
  if (reader.has("MASTER_ADDR")) by->master_addr = reader.text("MASTER_ADDR");
  if (const auto port = to_int(reader.number("MASTER_PORT", 1, kMostPort))) by->master_port = port;
  return by;
}

}  // namespace zeroth::launcher
