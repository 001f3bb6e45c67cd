// The restart attempts of a run: an attempt is one execution of the run's ranks. A failed one may
// be followed by another, which resumes from the last checkpoint. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/env_reader.h"

namespace zeroth {

// The maximum of RestartAttempt::cause.
inline constexpr size_t kMaxCauseBytes = 400;

struct RestartAttempt {
  std::string run = {};     // 16 hex digits, the same for all attempts of a run; empty: unknown
  int64_t index = 0;        // number of earlier attempts of this run
  std::string cause = {};   // why the previous attempt ended, a printable line; empty: unknown
  bool is_tracked = false;  // a launcher counts attempts
  bool is_global = false;   // counted by ZEROTH_ROUND, for all ranks
  // The run resumes by itself. Under torchrun it is false in an attempt that an agent caused by
  // joining or leaving: torchrun counts failures of ranks only.
  bool resumes = false;

  bool operator==(const RestartAttempt&) const = default;
};

// Returns the variables with which the launcher passes an attempt to its ranks; none if `run` is
// empty:
//   ZEROTH_RUN          16 hex digits
//   ZEROTH_ROUND        the index, from 0
//   ZEROTH_ROUND_CAUSE  one line of at most kMaxCauseBytes bytes, except in the first attempt
std::vector<std::pair<std::string, std::string>> restart_variables(const RestartAttempt& attempt);

// Reads these variables; the cause is not trusted: it is made printable. Without ZEROTH_ROUND,
// reads torchrun's TORCHELASTIC_RESTART_COUNT. Its TORCHELASTIC_RUN_ID is a name that the next run
// may also have ("none" by default), so it is no `run`. Throws an Error that names variable and
// value.
RestartAttempt parse_restart_attempt(const EnvLookup& lookup);

// One restart attempt in the record, metrics and page of a run whose launcher restarts the ranks.
struct AttemptRow {
  int64_t round = 0;  // RestartAttempt::index
  int64_t hosts = 1;
  int64_t ranks = 1;
  std::string cause = {};            // RestartAttempt::cause
  int64_t step = 0;                  // step after which it resumes
  std::optional<int64_t> lost = {};  // later steps of the previous attempt; none: unknown
};

}  // namespace zeroth
