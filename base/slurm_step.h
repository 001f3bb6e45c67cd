// What Slurm's numbers of jobs and steps mean to ranks and to the launcher alike.
#pragma once

#include <cstdint>

namespace zeroth {

// Whether `srun PROGRAM` is the step of this number: the script of sbatch, an interactive shell and
// others have numbers of their own.
inline bool is_srun_step(int64_t step) {
  return step < 0xfffffff0;
}

// Where those of a step meet if nobody says otherwise: the same for all of them, between 15000 and
// 24999.
inline int step_port(int64_t job, int64_t step) {
  return static_cast<int>(15'000 + (job + step) % 10'000);
}

}  // namespace zeroth
