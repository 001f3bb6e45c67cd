#include "comm/bootstrap/scheduler_env.h"

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/machine/invalid_port.h"
#include "base/machine/slurm_step.h"
#include "base/text/node_list.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::comm {
namespace {

constexpr int kMaxPort = 65'535;

// The variable names of one kind of launcher.
struct SchedulerVariables {
  std::string_view launcher;
  const char *rank, *size, *local_rank, *local_size;
};

constexpr SchedulerVariables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                          "LOCAL_SIZE"};
constexpr SchedulerVariables kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                       "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};
constexpr SchedulerVariables kKubeflow = {"Kubeflow", "PET_NODE_RANK", "PET_NNODES", "", ""};
constexpr std::string_view kPals = "PALS";
constexpr SchedulerVariables kSchedulers[] = {
    kTorchrun,
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {kPals, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};
constexpr const char* kLocalSizeOfTorchrun = "LOCAL_WORLD_SIZE";  // `zeroth` sets LOCAL_SIZE

class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  template <typename Number = int>
  std::optional<Number> number(const std::string& name, Number min_value,
                               Number max_value = std::numeric_limits<Number>::max()) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_number<Number>(*value);
    if (const std::string_view why = explain_invalid_port(*value); !why.empty())
      throw Error("environment variable {} {}", quote(name), why);
    if (!number || *number < min_value)
      throw Error("environment variable {}={} is not a number of at least {}", name,
                  shortened(*value), min_value);
    if (*number > max_value)
      throw Error("environment variable {}={} is not a number of at most {}", name,
                  shortened(*value), max_value);
    return number;
  }

  // Returns "RANK=3", for example.
  std::string quote(const std::string& name) const {
    return name + "=" + shortened(text(name).value_or(""));
  }

  // Returns read(text of the variable); puts the variable's name before the message of its Error.
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

bool is_slurm_step(const VariableReader& reader) {
  if (!reader.has(kSlurm.rank) || !reader.has(kSlurm.size)) return false;
  const auto step = reader.number<uint32_t>("SLURM_STEP_ID", 0);
  return step && is_srun_step(*step);
}

int tasks_on_node(const VariableReader& reader) {
  const char* const name = kSlurm.local_size;
  const auto counts =
      reader.read(name, [](const std::string& text) { return expand_counts(text); });
  const int node = reader.number("SLURM_NODEID", 0).value_or(0);
  if (static_cast<size_t>(node) >= counts.size() || counts[static_cast<size_t>(node)] < 1)
    throw Error("environment variable {} has no tasks for SLURM_NODEID={}", reader.quote(name),
                node);
  return counts[static_cast<size_t>(node)];
}

// Returns "RANK=0, WORLD_SIZE=2", for example.
std::string rank_variables(const VariableReader& reader, const SchedulerVariables& names) {
  const std::string rank = reader.has(names.rank) ? reader.quote(names.rank) : "";
  const std::string size = reader.has(names.size) ? reader.quote(names.size) : "";
  return rank + (rank.empty() || size.empty() ? "" : ", ") + size;
}

void check_consistent(const VariableReader& reader, const SchedulerVariables& names,
                      const SchedulerEnv& env) {
  if (env.rank >= env.world_size)
    throw Error("environment variable {} must be below {}", reader.quote(names.rank),
                reader.has(names.size) ? reader.quote(names.size)
                                       : fmt::format("{}, which is not set", names.size));
  if (env.local_size && *env.local_size > env.world_size)
    throw Error("environment variable {} is more than {}", reader.quote(names.local_size),
                reader.quote(names.size));
  if (env.local_rank && env.local_size && *env.local_rank >= *env.local_size)
    throw Error("environment variable {} must be below {}", reader.quote(names.local_rank),
                reader.quote(names.local_size));
}

SchedulerEnv from_slurm(const VariableReader& reader) {
  SchedulerEnv env;
  env.launcher = kSlurm.launcher;
  env.rank_variables = rank_variables(reader, kSlurm);
  env.rank = reader.number(kSlurm.rank, 0).value();
  env.world_size = reader.number(kSlurm.size, 1).value();
  env.local_rank = reader.number(kSlurm.local_rank, 0);
  if (reader.has(kSlurm.local_size)) env.local_size = tasks_on_node(reader);
  check_consistent(reader, kSlurm, env);
  return env;
}

SchedulerEnv from_variables(const VariableReader& reader, const SchedulerVariables& scheduler) {
  SchedulerEnv env;
  env.launcher = scheduler.launcher;
  env.rank_variables = rank_variables(reader, scheduler);
  env.rank = reader.number(scheduler.rank, 0).value();
  env.world_size = reader.number(scheduler.size, 1).value_or(1);
  env.local_rank = reader.number(scheduler.local_rank, 0);
  env.local_size = reader.number(scheduler.local_size, 1);
  check_consistent(reader, scheduler, env);
  if (env.local_size) return env;
  if (env.launcher == kTorchrun.launcher) {
    env.local_size = reader.number(kLocalSizeOfTorchrun, 1);
  } else if (is_slurm_step(reader)) {  // `srun --mpi=pmi2` tells PMI less than Slurm knows
    const SchedulerEnv step = from_slurm(reader);
    if (step.rank == env.rank && step.world_size == env.world_size) return step;
  }
  return env;
}

// A pod of Kubeflow's torch runtime knows its node's index among nodes, which is a rank only if
// each node has one rank.
SchedulerEnv from_kubeflow(const VariableReader& reader) {
  SchedulerEnv env;
  env.launcher = kKubeflow.launcher;
  env.rank_variables = rank_variables(reader, kKubeflow);
  const auto ask_for_launcher = [&](const char* name) {
    throw Error(
        "environment variable {} needs a launcher of ranks: start `zeroth finetune ...` (or "
        "torchrun) as the pod's command, which reads it",
        reader.quote(name));
  };
  const auto nodes = reader.text(kKubeflow.size);
  if (const auto ranks = reader.text("PET_NPROC_PER_NODE"); ranks && *ranks != "1")
    ask_for_launcher("PET_NPROC_PER_NODE");
  if (nodes && nodes->find(':') != std::string::npos) ask_for_launcher(kKubeflow.size);
  if (nodes && *nodes != "1" && !reader.has(kKubeflow.rank) && reader.has("PET_RDZV_ENDPOINT"))
    ask_for_launcher("PET_RDZV_ENDPOINT");
  env.rank = reader.number(kKubeflow.rank, 0).value_or(0);
  env.world_size = reader.number(kKubeflow.size, 1).value_or(1);
  env.local_rank = 0;
  env.local_size = 1;
  env.master_addr = reader.text("PET_MASTER_ADDR");
  env.master_port = reader.number("PET_MASTER_PORT", 1, kMaxPort);
  check_consistent(reader, kKubeflow, env);
  return env;
}

SchedulerEnv detect_scheduler(const VariableReader& reader) {
  for (const SchedulerVariables& scheduler : kSchedulers) {
    // PALS and other MPIs share the first two names.
    if (scheduler.launcher == kPals && !reader.has(scheduler.local_rank)) continue;
    if (reader.has(scheduler.rank)) return from_variables(reader, scheduler);
  }
  if (is_slurm_step(reader)) return from_slurm(reader);
  if (reader.has(kKubeflow.size) || reader.has(kKubeflow.rank)) return from_kubeflow(reader);
  SchedulerEnv none;
  none.local_rank = reader.number(kTorchrun.local_rank, 0);
  return none;
}

// Checks WORLD_SIZE set by a person beside the launcher's variables, as many scripts for Slurm do.
void check_world_size(const VariableReader& reader, const SchedulerEnv& env) {
  const auto world_size = reader.number(kTorchrun.size, 1);
  if (!world_size || reader.has(kTorchrun.rank) || *world_size == env.world_size) return;
  if (env.launcher.empty())
    throw Error("environment variable WORLD_SIZE={} is set, but RANK is not", *world_size);
  throw Error("environment variable WORLD_SIZE={} is set without RANK, but {} has {}", *world_size,
              env.launcher, pluralize(env.world_size, "rank"));
}

void set_slurm_master(const VariableReader& reader, SchedulerEnv& env) {
  const bool is_step = env.launcher == "Slurm" && reader.has("SLURM_STEP_NODELIST");
  const char* const list = is_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (!env.master_addr && reader.has(list))
    env.master_addr =
        reader.read(list, [](const std::string& text) { return expand_node_list(text).front(); });
  const auto job = reader.number<uint32_t>("SLURM_JOB_ID", 0);
  if (env.master_port || !job) return;
  const uint32_t step = is_step ? reader.number<uint32_t>("SLURM_STEP_ID", 0).value_or(0) : 0;
  env.master_port = step_port(*job, step);
}

void set_master(const VariableReader& reader, SchedulerEnv& env) {
  if (reader.has("MASTER_ADDR")) env.master_addr = reader.text("MASTER_ADDR");
  if (reader.has("MASTER_PORT")) env.master_port = reader.number("MASTER_PORT", 1, kMaxPort);
  const bool is_slurm = env.launcher == kSlurm.launcher;
  const bool is_single_node = env.local_size ? *env.local_size == env.world_size : !is_slurm;
  if (is_slurm || !is_single_node) set_slurm_master(reader, env);
  if (is_single_node && !reader.has("MASTER_ADDR")) env.master_addr.reset();
  if (!is_single_node && !env.master_addr && env.launcher != kTorchrun.launcher)
    throw Error(
        "{} has started {} ranks on several machines: environment variable MASTER_ADDR, the "
        "address of rank 0's machine, must be set for all of them",
        env.launcher, env.world_size);
}

}  // namespace

const std::vector<std::string>& scheduler_variables() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"MASTER_ADDR",     "MASTER_PORT",         kLocalSizeOfTorchrun,
                                    "SLURM_NODEID",    "SLURM_JOB_ID",        "SLURM_JOB_NODELIST",
                                    "SLURM_STEP_ID",   "SLURM_STEP_NODELIST", "PET_NPROC_PER_NODE",
                                    "PET_MASTER_ADDR", "PET_MASTER_PORT",     "PET_RDZV_ENDPOINT",
                                    kKubeflow.rank,    kKubeflow.size};
    all.insert(all.end(), {kSlurm.rank, kSlurm.size, kSlurm.local_rank, kSlurm.local_size});
    for (const SchedulerVariables& scheduler : kSchedulers)
      all.insert(all.end(),
                 {scheduler.rank, scheduler.size, scheduler.local_rank, scheduler.local_size});
    return all;
  }();
  return names;
}

SchedulerEnv read_scheduler_env(const Variables& variables) {
  const VariableReader reader(variables);
  SchedulerEnv env = detect_scheduler(reader);
  check_world_size(reader, env);
  set_master(reader, env);
  return env;
}

}  // namespace zeroth::comm
