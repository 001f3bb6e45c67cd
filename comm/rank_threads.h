// How many threads a rank computes with.
#pragma once

#include <cstdint>
#include <span>

#include "comm/device_mesh.h"
#include "comm/rank_env.h"

namespace zeroth::comm {

// `core_sets[r]` names the set of cores that rank r may run on. Out of its `cores`, which it shares
// with all who have the same set, rank `rank` takes an equal part: at least one, and not more than
// `max_threads`, what it would take by itself. Pure.
int fair_threads(std::span<const int64_t> core_sets, int rank, int cores, int max_threads);

// Sets LibTorch's number of threads in this process: OMP_NUM_THREADS where that is given; else this
// rank's part of the cores that its launcher left to it, or bound it to. A rank by itself keeps
// LibTorch's own. Collective.
void set_num_threads(const RankEnv& env, const DeviceMesh& mesh);

}  // namespace zeroth::comm
