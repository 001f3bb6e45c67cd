// Ranks that elastic agents started find out with whom they are in one round.
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
  int64_t index = 0;     // of rounds that began in this store before; the same on all ranks
  int64_t restarts = 0;  // the most that any rank was told
  std::string run;       // 16 hex digits, those of all rounds in this store
  std::string prefix;    // of keys that no other round uses
};

struct AttemptMember {
  int rank = 0;
  int world_size = 1;
  int64_t restarts = 0;  // TORCHELASTIC_RESTART_COUNT
  // Is called with the missing ranks when the wait for them lasts (base/slow_wait.h); may be empty.
  std::function<void(const std::string& for_whom, std::chrono::milliseconds waited)> on_wait = {};
};

// Each of torchrun's agents counts its own restarts, and none those that an agent began which came
// or went: ranks of one round have different counts, two rounds may have the same ones, and the
// agents' store keeps what rounds before left there. So each rank leaves a number that it drew, and
// rank 0 lists those of one round, anew where a rank of a round before gives way to one of this.
// Blocks for at most `limit` while ranks are missing, then throws an Error that names them; so
// does a rank 0 when another one has come in its place.
AgreedAttempt agree_on_attempt(c10d::Store& store, const AttemptMember& me,
                               std::chrono::milliseconds limit);

}  // namespace zeroth::comm
