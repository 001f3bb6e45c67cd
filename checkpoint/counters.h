// The numbers that an engine keeps in a manifest, and how they have to fit each other. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

// A number as it is printed, or the text itself.
std::string to_string(const Counter& counter);

// What is wrong with the counters of a checkpoint of `step` that are an engine's own, with the key
// and the values: "counters.applied_updates is 9, expected an integer in 0..8". Empty: nothing.
// Other counters, those of programs among them, may be anything.
std::string validation_error(const Counters& counters, int64_t step);

}  // namespace zeroth::checkpoint
