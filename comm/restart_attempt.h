// Which life of a run's ranks this is. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "comm/scheduler_env.h"

namespace zeroth::comm {

// A round is one life of the ranks of a run: a launcher that starts them anew begins the next one.
struct RestartAttempt {
  int64_t index = 0;        // how many rounds of this run were before
  std::string cause;        // why the one before ended, a printable line; empty: nobody says
  std::string run;          // 16 hex digits, those of all rounds of a run; empty: nobody says
  bool is_tracked = false;  // somebody counts rounds
  bool is_global = false;   // by ZEROTH_ROUND, for all ranks
  // What was begun before goes on by itself. Under torchrun false in a round that an agent began
  // which came or went: it counts failures of ranks only.
  bool resumes = false;
};

// What a launcher sets:
//   ZEROTH_ROUND        the number, from 0
//   ZEROTH_ROUND_CAUSE  one line of at most 400 bytes, of which nothing is believed: made printable
//   ZEROTH_RUN          16 hex digits
// and torchrun where there is no ZEROTH_ROUND: TORCHELASTIC_RESTART_COUNT. Its TORCHELASTIC_RUN_ID
// is a name that the next run may have as well ("none" by default), so it is no `run`.
// Throws an Error that names variable and value.
RestartAttempt parse_restart_attempt(const Variables& variables);

// All variables that parse_restart_attempt() reads.
const std::vector<std::string>& restart_attempt_variables();

}  // namespace zeroth::comm
