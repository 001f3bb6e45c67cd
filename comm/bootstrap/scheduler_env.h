// The rank of a process, according to the scheduler or launcher that started it. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::comm {

// Environment variables; an empty one counts as not set.
using Variables = std::map<std::string, std::string>;

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

// Returns all variables that read_scheduler_env() reads.
const std::vector<std::string>& scheduler_variables();

// Reads the variables of the first launcher that names a rank: RANK with WORLD_SIZE (`zeroth`,
// torchrun, a person), Open MPI's OMPI_COMM_WORLD_*, PMI_* of MPICH, Intel MPI and PALS, a step of
// Slurm, PET_* of a pod that runs one rank. A script of sbatch is no step: it is a world of one,
// however many tasks the job has.
//
// Uses MASTER_ADDR and MASTER_PORT if they are set. Otherwise, for a step of Slurm, or for MPI
// ranks on several nodes in a job of Slurm, uses the first node of its list, and port 15000 + (job
// + step) % 10000, so that jobs that share a node rarely use the same port.
//
// Throws an Error that names variables and values if they name no rank, contradict each other, or
// do not specify where ranks of several nodes bootstrap.
SchedulerEnv read_scheduler_env(const Variables& variables);

}  // namespace zeroth::comm
