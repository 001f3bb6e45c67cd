// The counters that an engine keeps in a manifest, and their consistency rules. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

// Returns a printed number, or the text itself.
std::string to_string(const Counter& counter);

// Returns what is invalid in the engine's own counters of a checkpoint of `step`, with key and
// values: "counters.applied_updates is 9, expected an integer in 0..8". Returns an empty text if
// all are valid. Accepts any other counter, including those of programs.
std::string validation_error(const Counters& counters, int64_t step);

}  // namespace zeroth::checkpoint
