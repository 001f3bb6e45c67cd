// How many threads a rank computes with.
#pragma once

#include "comm/bootstrap.h"

namespace zeroth::comm {

// Out of `cores` that all ranks of a host may use: an equal part, at least one. Not more than
// `alone`, what the rank would take by itself: its launcher may have bound it to fewer cores. Pure.
int fair_threads(int alone, int cores, int local_size);

// Sets LibTorch's number for this process: OMP_NUM_THREADS where that is given; else, where a host
// has several ranks, the fair part of the cores that what started this one (its parent process) may
// use; a rank by itself keeps LibTorch's own.
void set_num_threads(const RankEnv& env);

}  // namespace zeroth::comm
