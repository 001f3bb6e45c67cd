// Checks and descriptions of one value of a configuration file against its row of the key table.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "configs/schema/keys.h"

namespace zeroth::configs {

// Value of an integer that is Infinity in the file, if its range includes that.
inline constexpr int64_t kInfinity = std::numeric_limits<int64_t>::max();

// Returns the value in the type of its key: integers as int64, numbers as double, a string in the
// table's spelling, a list for one that may be a single integer. Returns nullopt if it has another
// type or a string contains NUL. Members of an object are not checked.
std::optional<nlohmann::ordered_json> typed_value(const nlohmann::ordered_json& value,
                                                  const ConfigKey& key);

// Returns whether a typed value is in the key's range or list.
bool is_accepted(const nlohmann::ordered_json& value, const ConfigKey& key);

// Returns whether `value` equals one of the JSON texts in `list`, separated by '|'.
bool is_one_of(const nlohmann::ordered_json& value, std::string_view list);

// Return texts for messages: "an integer"; "an integer > 0", "\"log\" | \"linear\""; the string
// "x", `8.5`, an object.
std::string type_name(KeyType type);
std::string describe_accepted(const ConfigKey& key);
std::string describe(const nlohmann::ordered_json& value);

}  // namespace zeroth::configs
