// The key-value store of a run: texts in it, and stores that protect it and log waits for it.
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

void set_text(c10d::Store& store, const std::string& key, const std::string& text);
// Waits for the key. Throws what the store throws.
std::string get_text(c10d::Store& store, const std::string& key);
// Waits for a key that rank `from` sets. Throws an Error that names it and this `rank`.
std::string get_text_from(c10d::Store& store, const std::string& key, int rank, int from);

// Wraps `store`: appends an HMAC (base/sha256.h) of run, key and value to every value; get() throws
// an Error if it does not match. Counters (add) and the existence of keys cannot be signed: with
// them, and by deleting keys, a stranger can make ranks wait and attempts have too large indices
// (agree_on_attempt), but not make ranks accept a false value. A value arrives in full before it is
// checked, however long it is: c10d stores return no part of one.
c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  const std::string& secret, std::string run);

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
