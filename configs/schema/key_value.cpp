#include "configs/schema/key_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/json/json.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

bool same_text(const Json& left, const Json& right) {
  if (!left.is_string() || !right.is_string()) return false;
  const auto &a = left.get_ref<const std::string&>(), &b = right.get_ref<const std::string&>();
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// Returns the text in the table's spelling.
Json canonical(const Json& text, const ConfigKey& key) {
  if (!key.any_case) return text;
  for (const std::string_view listed : split_values(key.accepts)) {
    if (const Json value = parse_trusted_json(listed); same_text(text, value)) return value;
  }
  return text;
}

// Returns whether a text contains NUL. The system would end a path or name there, whatever follows.
bool has_nul(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), has_nul);
  return value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos;
}

bool is_list_of(const Json& value, bool (Json::*is_entry)() const noexcept) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [&](const Json& entry) { return (entry.*is_entry)(); });
}

}  // namespace

std::string type_name(KeyType type) {
  constexpr std::string_view kNames[] = {"true or false",
                                         "an integer",
                                         "a number",
                                         "a string",
                                         "one of several values",
                                         "a list of two numbers",
                                         "a list of names",
                                         "a string or a list of names",
                                         "a list of integers",
                                         "an integer or a list of integers",
                                         "an object of integers",
                                         "an object of numbers",
                                         "an object"};
  return std::string(kNames[static_cast<size_t>(type)]);
}

std::string describe_accepted(const ConfigKey& key) {
  if (key.field.type == KeyType::kString || key.field.type == KeyType::kChoice) {
    return std::string(key.accepts);
  }
  return fmt::format("{} {}{}", type_name(key.field.type),
                     key.accepts.starts_with(">") ? "" : "in ", key.accepts);
}

std::optional<Json> typed_value(const Json& value, const ConfigKey& key) {
  constexpr double kInt64End = 9223372036854775808.0;
  if (has_nul(value)) return std::nullopt;
  switch (key.field.type) {
    case KeyType::kBool:
      return value.is_boolean() ? std::optional(value) : std::nullopt;
    case KeyType::kInteger: {
      if (!value.is_number()) return std::nullopt;
      const double number = value.get<double>();
      if (number == INFINITY && key.accepts.ends_with("Infinity")) return Json(kInfinity);
      if (number != std::floor(number) || std::abs(number) > kInt64End) return std::nullopt;
      if (number == kInt64End && value != Json(INT64_MAX)) return std::nullopt;
      return Json(value.is_number_float() ? static_cast<int64_t>(number) : value.get<int64_t>());
    }
    case KeyType::kNumber:
      return value.is_number() ? std::optional(Json(value.get<double>())) : std::nullopt;
    case KeyType::kString:
      return value.is_string() ? std::optional(canonical(value, key)) : std::nullopt;
    case KeyType::kChoice:
      return value;
    case KeyType::kPair:
      return value.size() == 2 && is_list_of(value, &Json::is_number) ? std::optional(value)
                                                                      : std::nullopt;
    case KeyType::kNames:
      if (value.is_string()) return value;
      [[fallthrough]];
    case KeyType::kList:
      return is_list_of(value, &Json::is_string) ? std::optional(value) : std::nullopt;
    case KeyType::kIntegerOrList:
      if (value.is_number_integer()) return Json::array({value});
      [[fallthrough]];
    case KeyType::kIntegers:
      return is_list_of(value, &Json::is_number_integer) ? std::optional(value) : std::nullopt;
    case KeyType::kIntegerMap:
    case KeyType::kNumberMap:
    case KeyType::kSection:
      return value.is_object() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

bool is_one_of(const Json& value, std::string_view list) {
  const auto values = split_values(list);
  return std::any_of(values.begin(), values.end(),
                     [&](std::string_view text) { return value == parse_trusted_json(text); });
}

bool is_accepted(const Json& value, const ConfigKey& key) {
  switch (key.field.type) {
    case KeyType::kInteger:
    case KeyType::kNumber:
      return in_range(value.get<double>(), key.accepts);
    case KeyType::kPair:
    case KeyType::kIntegers:
    case KeyType::kIntegerOrList:
      return std::all_of(value.begin(), value.end(), [&](const Json& entry) {
        return in_range(entry.get<double>(), key.accepts);
      });
    default:
      return key.accepts.empty() || is_one_of(value, key.accepts);
  }
}

std::string describe(const Json& value) {
  const char* const nul = has_nul(value) ? " with a NUL in it" : "";
  if (value.is_string()) return fmt::format("the string {}{}", quoted(value), nul);
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("the list {}{}", quoted(value), nul);
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    return fmt::format("{}", value.get<double>());
  }
  return value.dump();
}

}  // namespace zeroth::configs
