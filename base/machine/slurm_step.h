// Slurm's job and step ids, as ranks and the launcher interpret them.
#pragma once

#include <cstdint>

namespace zeroth {

// Returns whether the step id is one of `srun PROGRAM`. The batch script, interactive shells and
// others have reserved ids.
inline bool is_srun_step(int64_t step) {
  return step < 0xfffffff0;
}

// Returns the default rendezvous port of a step's processes, which is the same for all of them and
// between 15000 and 24999.
inline int step_port(int64_t job, int64_t step) {
  return static_cast<int>(15'000 + (job + step) % 10'000);
}

}  // namespace zeroth
