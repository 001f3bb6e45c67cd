// A store that logs long waits.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/bootstrap/rank_env.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// Returns "rank 0 of 8 (by SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8) waits for ranks 1 to 7 at
// 127.0.0.1:15077: 8 s so far, up to 600 s ...", for example.
std::string describe_wait(const RankEnv& env, const std::string& for_whom,
                          std::chrono::milliseconds waited);

// Returns "rank 1", "ranks 1 to 7" or "ranks 1, 3 and 5".
std::string describe_ranks(const std::vector<int>& ranks);

// Writes describe_wait() to standard error.
void log_wait(const RankEnv& env, const std::string& for_whom, std::chrono::milliseconds waited);

// Returns `store` with a key in it that marks this rank as arrived. get() and wait() poll instead
// of blocking, and log a long wait (SlowWait) with the ranks whose key is missing. One arrived rank
// of each node logs.
c10::intrusive_ptr<c10d::Store> make_waiting_store(c10::intrusive_ptr<c10d::Store> store,
                                                   const RankEnv& env);

}  // namespace zeroth::comm
