// The restart attempt of a run's ranks. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "comm/bootstrap/scheduler_env.h"

namespace zeroth::comm {

// A RestartAttempt is one start of all ranks of a run: a launcher that restarts them begins the
// next one.
struct RestartAttempt {
  int64_t index = 0;        // number of earlier attempts of this run
  std::string cause;        // why the previous attempt ended, a printable line; empty: unknown
  std::string run;          // 16 hex digits, the same for all attempts of a run; empty: unknown
  bool is_tracked = false;  // a launcher counts attempts
  bool is_global = false;   // counted by ZEROTH_ROUND, for all ranks
  // The run resumes by itself. Under torchrun it is false in an attempt that an agent caused by
  // joining or leaving: torchrun counts failures of ranks only.
  bool resumes = false;
};

// Reads the variables of a launcher:
//   ZEROTH_ROUND        the index, from 0
//   ZEROTH_ROUND_CAUSE  one line of at most 400 bytes, not trusted: it is made printable
//   ZEROTH_RUN          16 hex digits
// Without ZEROTH_ROUND, reads torchrun's TORCHELASTIC_RESTART_COUNT. Its TORCHELASTIC_RUN_ID is a
// name that the next run may also have ("none" by default), so it is no `run`. Throws an Error that
// names variable and value.
RestartAttempt parse_restart_attempt(const Variables& variables);

// Returns all variables that parse_restart_attempt() reads.
const std::vector<std::string>& restart_attempt_variables();

}  // namespace zeroth::comm
