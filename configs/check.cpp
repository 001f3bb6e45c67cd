#include "configs/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/nearest.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

std::string join(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

std::string type_name(KeyType type) {
  switch (type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInteger:
      return "an integer";
    case KeyType::kNumber:
      return "a number";
    case KeyType::kString:
      return "a string";
    case KeyType::kPair:
      return "a list of two numbers";
    case KeyType::kList:
      return "a list of names";
    case KeyType::kSection:
      return "an object";
  }
  return {};
}

// "an integer > 0", "an integer in 0..3", "\"log\" | \"linear\"".
std::string accepted_text(const Key& key) {
  if (key.type == KeyType::kString) return std::string(key.accepts);
  return fmt::format("{} {}{}", type_name(key.type), key.accepts.starts_with(">") ? "" : "in ",
                     key.accepts);
}

std::string table_path(const std::string& path) {
  for (const Alias& alias : aliases()) {
    if (path == alias.other) return std::string(alias.path);
  }
  return path;
}

// The value in the type of its key; nothing when it has another type.
std::optional<Json> converted(const Json& value, const Key& key) {
  constexpr double kInt64End = 9223372036854775808.0;
  switch (key.type) {
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
      return value.is_string() ? std::optional(value) : std::nullopt;
    case KeyType::kPair: {
      const bool is_pair =
          value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number();
      return is_pair ? std::optional(value) : std::nullopt;
    }
    case KeyType::kList: {
      const auto is_name = [](const Json& entry) { return entry.is_string(); };
      const bool names = value.is_array() && std::all_of(value.begin(), value.end(), is_name);
      return names ? std::optional(value) : std::nullopt;
    }
    case KeyType::kSection:
      return value.is_object() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

bool is_one_of(const Json& value, std::string_view list) {
  const auto values = split_values(list);
  return std::any_of(values.begin(), values.end(),
                     [&](std::string_view text) { return value == Json::parse(text); });
}

bool is_accepted(const Json& value, const Key& key) {
  switch (key.type) {
    case KeyType::kInteger:
    case KeyType::kNumber:
      return in_range(value.get<double>(), key.accepts);
    case KeyType::kPair:
      return in_range(value[0].get<double>(), key.accepts) &&
             in_range(value[1].get<double>(), key.accepts);
    default:
      return key.accepts.empty() || is_one_of(value, key.accepts);
  }
}

class Checker {
 public:
  explicit Checker(CheckedKeys& out) : out_(out) {}

  // `shown` is the section as the file spells it, `section` as the table does.
  void check_section(const Json& object, const std::string& shown, const std::string& section) {
    for (const auto& [name, value] : object.items()) {
      const std::string path = join(shown, name);
      const std::string key_path = table_path(join(section, name));
      const Key* key = find_key(key_path);
      if (key == nullptr) {
        complain_unknown(path, section, name);
      } else if (const auto [first, inserted] = seen_.emplace(key_path, path);
                 !inserted && first->second != path) {
        complain(path, "stands in the file also as {}: keep one", first->second);
      } else {
        out_.given.push_back({path, key, value});
        const size_t before = out_.complaints.size();
        check_key(value, path, *key);
        const bool complained = out_.complaints.size() > before;
        if (complained && out_.values.count(key_path) == 0) out_.bad.insert(key_path);
      }
    }
  }

 private:
  template <typename... Args>
  void complain(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
    out_.complaints.push_back(path + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void complain_unknown(const std::string& path, const std::string& section,
                        const std::string& name) {
    const std::string_view near = nearest_name(name, names_in(section));
    if (!near.empty()) {
      const std::string meant = join(section, near);
      complain(path, "unknown key; did you mean {}?", meant);
      out_.bad.insert(table_path(meant));  // probably given: not to be missed later
      return;
    }
    for (const Key& key : keys()) {
      if (key.path.ends_with("." + name)) {
        complain(path, "unknown key; did you mean {}?", key.path);
        return;
      }
    }
    complain(path, "unknown key");
  }

  void check_key(const Json& value, const std::string& path, const Key& key) {
    if (key.path == "zero_optimization" && value.is_boolean()) {
      const int stage = value.get<bool>() ? 1 : 0;
      out_.values["zero_optimization.stage"] = stage;
      out_.notes.push_back(
          fmt::format("{}: {} is the old form of {{\"stage\": {}}}", path, value.dump(), stage));
    } else if (key.state == KeyState::kRefused) {
      check_refused(value, path, key);
    } else if (value == "auto" && key.type != KeyType::kSection) {
      check_auto(path, key);
    } else if (value.is_null() && key.fallback == "null") {
      return;
    } else {
      check_value(value, path, key);
    }
  }

  void check_auto(const std::string& path, const Key& key) {
    if (key.automatic.empty()) {
      complain(path, "\"auto\" has no meaning here: give a value (default {})", key.fallback);
    } else if (key.state == KeyState::kHonoured) {
      out_.values[std::string(key.path)] = "auto";
    }
  }

  void check_value(const Json& value, const std::string& path, const Key& key) {
    const std::optional<Json> typed = converted(value, key);
    if (!typed) {
      complain(path, "expected {}, found {}", type_name(key.type), describe(value));
    } else if (key.type == KeyType::kSection) {
      out_.values[std::string(key.path)] = Json::object();
      check_section(value, path, std::string(key.path));
    } else if (!is_accepted(*typed, key)) {
      complain(path, "expected {}, found {}", accepted_text(key), describe(value));
    } else if (key.state == KeyState::kHonoured) {
      out_.values[std::string(key.path)] = *typed;
    } else if (value != Json::parse(key.fallback)) {
      out_.notes.push_back(fmt::format("{} {} has no effect: {}", path, value.dump(), key.text));
    }
  }

  void check_refused(const Json& value, const std::string& path, const Key& key) {
    if (key.type == KeyType::kSection) {
      check_refused_section(value, path, key);
    } else if (!is_one_of(value, key.fallback) && !is_one_of(value, key.accepts)) {
      complain(path, "{} is refused: {}; accepted: {}{}", value.dump(), key.text, key.fallback,
               key.accepts.empty() ? "" : fmt::format(" | {}", key.accepts));
    }
  }

  void check_refused_section(const Json& value, const std::string& path, const Key& key) {
    if (value.is_null()) return;
    if (!value.is_object()) {
      complain(path, "expected {}, found {}", type_name(key.type), describe(value));
      return;
    }
    const auto parts = split_values(key.accepts, '=');
    const std::string off = parts.empty() ? "" : std::string(parts[0]);
    const bool is_off = !parts.empty() && (!value.contains(off) || is_one_of(value[off], parts[1]));
    if (!is_off) {
      complain(path, "refused: {}; leave the section out{}", key.text,
               parts.empty() ? "" : fmt::format(" or set {} to {}", off, parts[1]));
    }
    std::vector<std::string_view> inside = split_values(key.inside, ' ');
    if (!off.empty()) inside.push_back(parts[0]);
    check_names(value, path, "", inside);
  }

  // Names only: what a section that is switched off says has no effect.
  void check_names(const Json& object, const std::string& path, const std::string& relative,
                   const std::vector<std::string_view>& inside) {
    for (const auto& [name, value] : object.items()) {
      const std::string inner = join(relative, name);
      const bool open = std::any_of(inside.begin(), inside.end(), [&](std::string_view known) {
        return known == "*" || known == inner + ".*";
      });
      if (open) continue;
      if (std::find(inside.begin(), inside.end(), inner) == inside.end()) {
        const std::string_view near = nearest_name(inner, inside);
        complain(join(path, name), "unknown key{}",
                 near.empty() ? "" : fmt::format("; did you mean {}?", near));
      } else if (value.is_object()) {
        check_names(value, join(path, name), inner, inside);
      }
    }
  }

  CheckedKeys& out_;
  std::map<std::string, std::string> seen_;  // table path -> path in the file
};

}  // namespace

std::string describe(const Json& value) {
  if (value.is_string()) return "the string " + value.dump();
  if (value.is_object()) return "an object";
  if (value.is_array()) return "the list " + value.dump();
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    return fmt::format("{}", value.get<double>());
  }
  return value.dump();
}

CheckedKeys check_keys(const Json& root, const std::string& name) {
  CheckedKeys out;
  out.name = name;
  if (root.is_object()) {
    Checker(out).check_section(root, "", "");
  } else {
    out.complaints.push_back("expected an object at the top level, found " + describe(root));
  }
  return out;
}

}  // namespace zeroth::configs
