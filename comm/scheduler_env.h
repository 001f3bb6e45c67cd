// Which rank a process is, by the word of whoever has started it. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::comm {

// Environment variables; an empty one counts as not set.
using Variables = std::map<std::string, std::string>;

struct SchedulerEnv {
  std::string launcher;        // "Slurm"; empty: no variable says that there are other ranks
  std::string rank_variables;  // "SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8"; empty as the launcher
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;  // among the ranks of this machine
  std::optional<int> local_size;  // of those; empty: nobody says how many there are
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
};

// All variables that read_scheduler_env() reads.
const std::vector<std::string>& scheduler_variables();

// The first of these that names a rank: RANK with WORLD_SIZE (`zeroth`, torchrun, a person), Open
// MPI's OMPI_COMM_WORLD_*, PMI_* of MPICH, Intel MPI and PALS, a step of Slurm, PET_* of a pod that
// runs one rank. A script of sbatch is no step: by itself it is a world of one, however many tasks
// the job has.
//
// MASTER_ADDR and MASTER_PORT where they are set. Else of a step of Slurm, or of MPI ranks on
// several machines in a job of Slurm: the first machine of its list, and
// 15000 + (job + step) % 10000, so that jobs that share a machine rarely meet at one port.
//
// Throws an Error that names variables and values where they say no rank, contradict each other, or
// leave open where ranks of several machines meet.
SchedulerEnv read_scheduler_env(const Variables& variables);

}  // namespace zeroth::comm
