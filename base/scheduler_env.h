// The rank of a process, according to the scheduler or launcher that started it. The ranks and the
// launcher read the same table. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env_reader.h"

namespace zeroth {

// The names of the variables that one kind of launcher sets; "": it sets none.
struct SchedulerVariables {
  std::string_view launcher;
  const char *rank, *size;
  const char* local_rank = "";    // among the ranks of this node
  const char* local_size = "";    // number of the ranks of this node
  const char* one_per_node = "";  // the command that starts one process on each node
};

inline constexpr SchedulerVariables kOpenMpi = {"Open MPI",
                                                "OMPI_COMM_WORLD_RANK",
                                                "OMPI_COMM_WORLD_SIZE",
                                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                                "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                "mpirun --map-by ppr:1:node"};
inline constexpr SchedulerVariables kPals = {"PALS",           "PMI_RANK",       "PMI_SIZE",
                                             "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "mpiexec --ppn 1"};
// MPICH and Intel MPI, which share two names with PALS.
inline constexpr SchedulerVariables kHydra = {
    "MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpirun -ppn 1"};
inline constexpr SchedulerVariables kSlurm = {"Slurm",
                                              "SLURM_PROCID",
                                              "SLURM_STEP_NUM_TASKS",
                                              "SLURM_LOCALID",
                                              "SLURM_STEP_TASKS_PER_NODE",
                                              "srun --ntasks-per-node=1"};

inline constexpr int kMaxPort = 65'535;

struct SchedulerEnv {
  std::string launcher;        // "Slurm"; empty: no variable indicates other ranks
  std::string rank_variables;  // "SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8"; empty if launcher is
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;  // among the ranks of this node
  std::optional<int> local_size;  // number of the ranks of this node; unset: unknown
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
};

// Reads the variables of the first launcher that names a rank: RANK with WORLD_SIZE (`zeroth`,
// torchrun, a person), Open MPI's OMPI_COMM_WORLD_*, PMI_* of MPICH, Intel MPI and PALS, a step of
// Slurm, PET_* of a pod that runs one rank. A script of sbatch is no step: it is a world of one,
// however many tasks the job has.
//
// Uses MASTER_ADDR and MASTER_PORT if they are set. Otherwise, for a step of Slurm, or for MPI
// ranks on several nodes in a job of Slurm, uses slurm_master_addr() and slurm_master_port().
//
// Throws an Error that names variables and values if they name no rank, contradict each other, or
// do not specify where ranks of several nodes bootstrap.
SchedulerEnv read_scheduler_env(const EnvLookup& lookup);

// Returns whether the process belongs to a step of `srun PROGRAM`. The batch script, interactive
// shells and others have reserved step ids.
bool is_srun_step(const EnvReader& reader);

// Return where the processes of a step of Slurm (`is_step`), or those that another launcher has
// started within a job, bootstrap: the first node of the list, and port 15000 + (job + step) %
// 10000, so that jobs that share a node rarely use the same port. Empty: not within a job of Slurm.
std::optional<std::string> slurm_master_addr(const EnvReader& reader, bool is_step);
std::optional<int> slurm_master_port(const EnvReader& reader, bool is_step);

// Throws an Error if `rank` is not below `size`, which were read from these variables.
void check_rank_below_size(const EnvReader& reader, const char* rank_name, int rank,
                           const char* size_name, int size);

// Expands "n[1-3,07],login" to n1, n2, n3, n07, login: in the list's order, with the last bracket
// of a name varying fastest. Numbers keep their leading zeros ("[08-10]" is 08, 09, 10). Throws an
// Error that quotes the list if it is invalid or has more than 65,536 names.
std::vector<std::string> expand_node_list(std::string_view list);

// Expands "2(x3),1" to 2, 2, 2, 1: at most 65,536 numbers, none negative. Throws like
// expand_node_list().
std::vector<int> expand_counts(std::string_view list);

}  // namespace zeroth
