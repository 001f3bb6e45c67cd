// A store whose waits are told of when they last.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// "rank 0 of 8 (by SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8) waits for ranks 1 to 7 at
// 127.0.0.1:15077: 8 s by now, up to 600 s ..."
std::string waiting_text(const RankEnv& env, const std::string& for_whom,
                         std::chrono::milliseconds waited);

// "rank 1", "ranks 1 to 7", "ranks 1, 3 and 5".
std::string ranks_text(const std::vector<int>& ranks);

// Writes such a line to standard error.
void say_that_it_waits(const std::string& text);

using Say = std::function<void(const std::string& text)>;

// `store`, in which this rank now leaves a word that it has come. get() and wait() ask again and
// again instead of blocking; what lasts they tell `say` as SlowWait has it, with the ranks that
// have left no such word. Of the ranks of one machine one tells, as long as it has come itself.
c10::intrusive_ptr<c10d::Store> make_waiting_store(c10::intrusive_ptr<c10d::Store> store,
                                                   const RankEnv& env, Say say = say_that_it_waits);

}  // namespace zeroth::comm
