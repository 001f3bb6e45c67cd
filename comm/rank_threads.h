// The number of compute threads of a rank.
#pragma once

#include <cstdint>
#include <span>

#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"

namespace zeroth::comm {

// Returns the number of threads of `rank`. `core_sets[r]` identifies the set of cores on which rank
// r may run. The rank gets an equal part of its `cores`, which it shares with all ranks of the same
// set: at least one thread, and at most `max_threads`, its number if it ran by itself. Pure.
int fair_threads(std::span<const int64_t> core_sets, int rank, int cores, int max_threads);

// Sets LibTorch's number of threads in this process: OMP_NUM_THREADS if that is set; else this
// rank's part of the cores that its launcher assigned or bound to it. A single rank keeps
// LibTorch's default. Collective.
void set_num_threads(const RankEnv& env, const DeviceMesh& mesh);

}  // namespace zeroth::comm
