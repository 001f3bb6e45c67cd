// Agreement of ranks that elastic agents started on the members of one restart attempt.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct AgreedAttempt {
  int64_t index = 0;        // attempts that began in this store before; the same on all ranks
  int64_t restarts = 0;     // maximum of the ranks' restart counts
  std::string run = {};     // 16 hex digits, the same for all attempts in this store
  std::string prefix = {};  // prefix of this attempt's keys, unique per attempt
};

struct AttemptMember {
  int rank = 0;
  int world_size = 1;
  int64_t restarts = 0;  // TORCHELASTIC_RESTART_COUNT
  // Called with the missing ranks when the wait for them lasts (base/machine/timer.h); may be
  // empty.
  std::function<void(const std::string& for_whom, std::chrono::milliseconds waited)> on_wait = {};
};

// Agrees with all ranks on the attempt that they form together. Each of torchrun's agents counts
// only its own restarts, and no agent counts those that follow when an agent joins or leaves: ranks
// of one attempt have different counts, two attempts may have the same ones, and the agents' store
// keeps the entries of earlier attempts. So each rank writes a random nonce, and rank 0 lists the
// nonces of one attempt; it lists them again when a rank of this attempt replaces one of an earlier
// attempt. Blocks for at most `limit` while ranks are missing, then throws an Error that names
// them. Also throws an Error on a rank 0 that another rank 0 has replaced.
AgreedAttempt agree_on_attempt(c10d::Store& store, const AttemptMember& me,
                               std::chrono::milliseconds limit);

}  // namespace zeroth::comm
