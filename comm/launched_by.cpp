#include "comm/launched_by.h"

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/node_list.h"
#include "base/port_text.h"
#include "base/printable.h"
#include "base/slurm_step.h"
#include "base/units.h"

namespace zeroth::comm {
namespace {

constexpr int kMostPort = 65'535;

// What one kind of launcher calls what it says.
struct Dialect {
  std::string_view launcher;
  const char *rank, *size, *local_rank, *local_size;
};

constexpr Dialect kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"};
constexpr Dialect kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                            "SLURM_STEP_TASKS_PER_NODE"};
constexpr Dialect kKubeflow = {"Kubeflow", "PET_NODE_RANK", "PET_NNODES", "", ""};
constexpr std::string_view kPals = "PALS";
constexpr Dialect kDialects[] = {
    kTorchrun,
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {kPals, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};
constexpr const char* kLocalSizeOfTorchrun = "LOCAL_WORLD_SIZE";  // `zeroth` says LOCAL_SIZE

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  template <typename Number = int>
  std::optional<Number> number(const std::string& name, Number least,
                               Number most = std::numeric_limits<Number>::max()) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_number<Number>(*value);
    if (const std::string_view why = why_no_port(*value); !why.empty())
      throw Error("environment variable {} {}", quote(name), why);
    if (!number || *number < least)
      throw Error("environment variable {}={} is not a number of at least {}", name,
                  shortened(*value), least);
    if (*number > most)
      throw Error("environment variable {}={} is not a number of at most {}", name,
                  shortened(*value), most);
    return number;
  }

  // "RANK=3"
  std::string quote(const std::string& name) const {
    return name + "=" + shortened(text(name).value_or(""));
  }

  // What `read` makes of the variable's text; its Error with the variable's name before it.
  template <typename Read>
  auto read(const std::string& name, Read&& read) const {
    try {
      return read(text(name).value_or(""));
    } catch (const Error& error) {
      throw Error("environment variable {}: {}", name, error.what());
    }
  }

 private:
  const Variables& variables_;
};

bool is_step_of_slurm(const Reader& reader) {
  if (!reader.has(kSlurm.rank) || !reader.has(kSlurm.size)) return false;
  const auto step = reader.number<uint32_t>("SLURM_STEP_ID", 0);
  return step && is_step_of_srun(*step);
}

int tasks_of_node(const Reader& reader) {
  const char* const name = kSlurm.local_size;
  const auto counts =
      reader.read(name, [](const std::string& text) { return expand_counts(text); });
  const int node = reader.number("SLURM_NODEID", 0).value_or(0);
  if (static_cast<size_t>(node) >= counts.size() || counts[static_cast<size_t>(node)] < 1)
    throw Error("environment variable {} has no tasks for SLURM_NODEID={}", reader.quote(name),
                node);
  return counts[static_cast<size_t>(node)];
}

// "RANK=0, WORLD_SIZE=2"
std::string rank_variables(const Reader& reader, const Dialect& names) {
  const std::string rank = reader.has(names.rank) ? reader.quote(names.rank) : "";
  const std::string size = reader.has(names.size) ? reader.quote(names.size) : "";
  return rank + (rank.empty() || size.empty() ? "" : ", ") + size;
}

void check_agree(const Reader& reader, const Dialect& names, const LaunchedBy& by) {
  if (by.rank >= by.world_size)
    throw Error("environment variable {} must be below {}", reader.quote(names.rank),
                reader.has(names.size) ? reader.quote(names.size)
                                       : fmt::format("{}, which is not set", names.size));
  if (by.local_size && *by.local_size > by.world_size)
    throw Error("environment variable {} is more than {}", reader.quote(names.local_size),
                reader.quote(names.size));
  if (by.local_rank && by.local_size && *by.local_rank >= *by.local_size)
    throw Error("environment variable {} must be below {}", reader.quote(names.local_rank),
                reader.quote(names.local_size));
}

LaunchedBy by_slurm(const Reader& reader) {
  LaunchedBy by;
  by.launcher = kSlurm.launcher;
  by.rank_variables = rank_variables(reader, kSlurm);
  by.rank = reader.number(kSlurm.rank, 0).value();
  by.world_size = reader.number(kSlurm.size, 1).value();
  by.local_rank = reader.number(kSlurm.local_rank, 0);
  if (reader.has(kSlurm.local_size)) by.local_size = tasks_of_node(reader);
  check_agree(reader, kSlurm, by);
  return by;
}

LaunchedBy in_dialect(const Reader& reader, const Dialect& dialect) {
  LaunchedBy by;
  by.launcher = dialect.launcher;
  by.rank_variables = rank_variables(reader, dialect);
  by.rank = reader.number(dialect.rank, 0).value();
  by.world_size = reader.number(dialect.size, 1).value_or(1);
  by.local_rank = reader.number(dialect.local_rank, 0);
  by.local_size = reader.number(dialect.local_size, 1);
  check_agree(reader, dialect, by);
  if (by.local_size) return by;
  if (by.launcher == kTorchrun.launcher) {
    by.local_size = reader.number(kLocalSizeOfTorchrun, 1);
  } else if (is_step_of_slurm(reader)) {  // `srun --mpi=pmi2` tells PMI less than Slurm knows
    const LaunchedBy step = by_slurm(reader);
    if (step.rank == by.rank && step.world_size == by.world_size) return step;
  }
  return by;
}

// A pod of Kubeflow's torch runtime says what its machine is among machines: a rank is that only
// where each machine has one.
LaunchedBy by_kubeflow(const Reader& reader) {
  LaunchedBy by;
  by.launcher = kKubeflow.launcher;
  by.rank_variables = rank_variables(reader, kKubeflow);
  const auto ask_for_launcher = [&](const char* name) {
    throw Error(
        "environment variable {} asks for a launcher of ranks: start `zeroth finetune ...` (or "
        "torchrun) as the pod's command, which reads it",
        reader.quote(name));
  };
  const auto nodes = reader.text(kKubeflow.size);
  if (const auto ranks = reader.text("PET_NPROC_PER_NODE"); ranks && *ranks != "1")
    ask_for_launcher("PET_NPROC_PER_NODE");
  if (nodes && nodes->find(':') != std::string::npos) ask_for_launcher(kKubeflow.size);
  if (nodes && *nodes != "1" && !reader.has(kKubeflow.rank) && reader.has("PET_RDZV_ENDPOINT"))
    ask_for_launcher("PET_RDZV_ENDPOINT");
  by.rank = reader.number(kKubeflow.rank, 0).value_or(0);
  by.world_size = reader.number(kKubeflow.size, 1).value_or(1);
  by.local_rank = 0;
  by.local_size = 1;
  by.master_addr = reader.text("PET_MASTER_ADDR");
  by.master_port = reader.number("PET_MASTER_PORT", 1, kMostPort);
  check_agree(reader, kKubeflow, by);
  return by;
}

LaunchedBy who(const Reader& reader) {
  for (const Dialect& dialect : kDialects) {
    // PALS and other MPIs share the first two names.
    if (dialect.launcher == kPals && !reader.has(dialect.local_rank)) continue;
    if (reader.has(dialect.rank)) return in_dialect(reader, dialect);
  }
  if (is_step_of_slurm(reader)) return by_slurm(reader);
  if (reader.has(kKubeflow.size) || reader.has(kKubeflow.rank)) return by_kubeflow(reader);
  LaunchedBy nobody;
  nobody.local_rank = reader.number(kTorchrun.local_rank, 0);
  return nobody;
}

// What a person wrote beside what a launcher says, as many scripts for Slurm do.
void check_world_size(const Reader& reader, const LaunchedBy& by) {
  const auto world_size = reader.number(kTorchrun.size, 1);
  if (!world_size || reader.has(kTorchrun.rank) || *world_size == by.world_size) return;
  if (by.launcher.empty())
    throw Error("environment variable WORLD_SIZE={} is set, but RANK is not", *world_size);
  throw Error("environment variable WORLD_SIZE={} is set without RANK, but the world of {} is {}",
              *world_size, by.launcher, counted(by.world_size, "rank"));
}

void meet_in_slurm_job(const Reader& reader, LaunchedBy& by) {
  const bool of_step = by.launcher == "Slurm" && reader.has("SLURM_STEP_NODELIST");
  const char* const list = of_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (!by.master_addr && reader.has(list))
    by.master_addr =
        reader.read(list, [](const std::string& text) { return expand_node_list(text).front(); });
  const auto job = reader.number<uint32_t>("SLURM_JOB_ID", 0);
  if (by.master_port || !job) return;
  const uint32_t step = of_step ? reader.number<uint32_t>("SLURM_STEP_ID", 0).value_or(0) : 0;
  by.master_port = port_of_step(*job, step);
}

void find_meeting(const Reader& reader, LaunchedBy& by) {
  if (reader.has("MASTER_ADDR")) by.master_addr = reader.text("MASTER_ADDR");
  if (reader.has("MASTER_PORT")) by.master_port = reader.number("MASTER_PORT", 1, kMostPort);
  const bool of_slurm = by.launcher == kSlurm.launcher;
  const bool on_one_machine = by.local_size ? *by.local_size == by.world_size : !of_slurm;
  if (of_slurm || !on_one_machine) meet_in_slurm_job(reader, by);
  if (on_one_machine && !reader.has("MASTER_ADDR")) by.master_addr.reset();
  if (!on_one_machine && !by.master_addr && by.launcher != kTorchrun.launcher)
    throw Error(
        "{} has started {} ranks on several machines: environment variable MASTER_ADDR, the "
        "address of rank 0's machine, must be set for all of them",
        by.launcher, by.world_size);
}

}  // namespace

const std::vector<std::string>& launcher_variables() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"MASTER_ADDR",     "MASTER_PORT",         kLocalSizeOfTorchrun,
                                    "SLURM_NODEID",    "SLURM_JOB_ID",        "SLURM_JOB_NODELIST",
                                    "SLURM_STEP_ID",   "SLURM_STEP_NODELIST", "PET_NPROC_PER_NODE",
                                    "PET_MASTER_ADDR", "PET_MASTER_PORT",     "PET_RDZV_ENDPOINT",
                                    kKubeflow.rank,    kKubeflow.size};
    all.insert(all.end(), {kSlurm.rank, kSlurm.size, kSlurm.local_rank, kSlurm.local_size});
    for (const Dialect& dialect : kDialects)
      all.insert(all.end(), {dialect.rank, dialect.size, dialect.local_rank, dialect.local_size});
    return all;
  }();
  return names;
}

LaunchedBy launched_by(const Variables& variables) {
  const Reader reader(variables);
  LaunchedBy by = who(reader);
  check_world_size(reader, by);
  find_meeting(reader, by);
  return by;
}

}  // namespace zeroth::comm
