// A store that logs the waits that last.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/rank_env.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// "rank 0 of 8 (by SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8) waits for ranks 1 to 7 at
// 127.0.0.1:15077: 8 s by now, up to 600 s ..."
std::string describe_wait(const RankEnv& env, const std::string& for_whom,
                          std::chrono::milliseconds waited);

// "rank 1", "ranks 1 to 7", "ranks 1, 3 and 5".
std::string describe_ranks(const std::vector<int>& ranks);

// Writes this line to standard error.
void log_wait(const RankEnv& env, const std::string& for_whom, std::chrono::milliseconds waited);

// Returns `store` with a key in it that says that this rank has come. get() and wait() poll instead
// of blocking, and log a wait that lasts (SlowWait) with the ranks whose key is missing. Of the
// ranks of one machine that have come, one logs.
c10::intrusive_ptr<c10d::Store> make_waiting_store(c10::intrusive_ptr<c10d::Store> store,
                                                   const RankEnv& env);

}  // namespace zeroth::comm
