// The counters of a manifest, which are all values that are not tensors, and the consistency rules
// of those that an engine keeps. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

namespace zeroth {
class JsonView;
}  // namespace zeroth

namespace zeroth::checkpoint {

// A Counter's double round-trips bit by bit, except for the payload of a NaN.
using Counter = std::variant<int64_t, double, std::string>;
using Counters = std::map<std::string, Counter>;

// Returns a printed number, or the text itself.
std::string to_string(const Counter& counter);

// Returns the JSON of a counter. A double that JSON cannot represent becomes an object:
// {"double": "-inf"}.
nlohmann::ordered_json to_json(const Counter& counter);
// Returns the counter that to_json() wrote. Throws like JsonView for any other value.
Counter parse_counter(const JsonView& view);

// Returns what is invalid in the engine's own counters of a checkpoint of `step`, with key and
// values: "counters.applied_updates is 9, expected an integer in 0..8". Returns an empty text if
// all are valid. Accepts any other counter, including those of programs.
std::string validation_error(const Counters& counters, int64_t step);

}  // namespace zeroth::checkpoint
