// One value of a configuration file beside its row of the key table.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "configs/schema/keys.h"

namespace zeroth::configs {

// An integer that stands in the file as Infinity, where its range has that.
inline constexpr int64_t kInfinity = std::numeric_limits<int64_t>::max();

// The value in the type of its key: integers as int64, numbers as double, a string in the table's
// spelling. Nothing when it has another type, or a NUL in a text.
std::optional<nlohmann::ordered_json> typed_value(const nlohmann::ordered_json& value,
                                                  const ConfigKey& key);

// Whether a typed value lies in the key's range or list.
bool is_accepted(const nlohmann::ordered_json& value, const ConfigKey& key);

// Whether it equals one of JSON texts separated by '|'.
bool is_one_of(const nlohmann::ordered_json& value, std::string_view list);

// For messages: "an integer"; "an integer > 0", "\"log\" | \"linear\""; the string "x", `8.5`, an
// object.
std::string type_name(KeyType type);
std::string describe_accepted(const ConfigKey& key);
std::string describe(const nlohmann::ordered_json& value);

}  // namespace zeroth::configs
