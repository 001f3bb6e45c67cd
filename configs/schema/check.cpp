#include "configs/schema/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

std::string join(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

// Returns whether a name is a comment, as people and templates write them among keys.
bool is_comment(std::string_view name) {
  return name.starts_with('_') || name.starts_with('#') || name.starts_with("//");
}

class Checker {
 public:
  explicit Checker(CheckedKeys& out) : out_(out) {}

  // `shown` is the section as the file spells it, `section` as the table does.
  void check_section(const Json& object, const std::string& shown, const std::string& section) {
    for (const auto& [name, value] : object.items()) {
      if (is_comment(name)) continue;
      const std::string path = join(shown, name), spelled = join(section, name);
      const Alias* alias = find_alias(spelled);
      const std::string key_path(alias != nullptr ? alias->path : std::string_view(spelled));
      const ConfigKey* key = find_key(key_path);
      out_.given.push_back({path, key, value});
      if (key == nullptr) {
        report_unknown_key(join(shown, shortened(name)), section, name);
      } else if (const auto [first, inserted] = seen_.emplace(key_path, path);
                 !inserted && first->second != path) {
        add_error(path, "duplicate key, also in the file as {}: keep one", first->second);
      } else if (alias != nullptr && alias->kind == Alias::Kind::kCpuDevice) {
        check_cpu_device(value, path, *key);
      } else {
        if (alias != nullptr && alias->kind == Alias::Kind::kDeprecated) {
          warn(out_.notes, path, "{} is the old name of {}", path, key_path);
        }
        check_known(value, path, *key);
      }
    }
  }

 private:
  template <typename... Args>
  void add_error(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
    out_.errors.push_back(path + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void report_unknown_key(const std::string& path, const std::string& section,
                          const std::string& name) {
    const bool top = section.empty();
    if (name.starts_with("comment")) {
      constexpr std::string_view kComments = "unknown key; names of comments begin with _, # or //";
      return top ? ignore(path, kComments) : add_error(path, "{}", kComments);
    }
    if (!guesses_.take()) return top ? ignore(path, "unknown key") : add_error(path, "unknown key");
    const std::vector<std::string_view> known = names_in(section);
    const std::string_view near = nearest_name(name, known);
    if (!near.empty() && (!top || edit_distance(name, near) <= kMistyped)) {
      const std::string meant = join(section, near);
      add_error(path, "unknown key; did you mean {}?", meant);
      const Alias* alias = find_alias(meant);
      // Probably the intended key: it is not missing.
      out_.bad.insert(alias != nullptr ? std::string(alias->path) : meant);
      return;
    }
    if (top) {
      const std::string_view related = near.empty() ? related_name(name) : near;
      return ignore(path, related.empty()
                              ? "unknown key"
                              : fmt::format("unknown key; the nearest known one is {}", related));
    }
    for (const ConfigKey& key : keys()) {
      const bool of_top = key.path == name;
      if (!of_top && !key.path.ends_with("." + name)) continue;
      return add_error(path, "unknown key; did you mean {}{}?", key.path,
                       of_top ? ", at the top level of the file" : "");
    }
    add_error(path, "unknown key");
  }

  // Records an unknown key at the top level, where DeepSpeed ignores it.
  void ignore(const std::string& path, std::string_view text) {
    if (++out_.num_unknown <= kMaxErrors) warn(out_.unknown, path, "{}", text);
  }

  // Returns a key of that name in any section, or one that shares a word with it.
  static std::string_view related_name(std::string_view name) {
    const auto ends = [&](std::string_view path, std::string_view tail) {
      return path.size() > tail.size() && path.ends_with(tail) &&
             (path[path.size() - tail.size() - 1] == '.' ||
              path[path.size() - tail.size() - 1] == '_');
    };
    for (const ConfigKey& key : keys()) {
      if (ends(key.path, name)) return key.path;
    }
    constexpr std::string_view kOfMany[] = {"size", "num", "max", "min"};
    for (const std::string_view word : split_values(name, '_')) {
      if (std::find(std::begin(kOfMany), std::end(kOfMany), word) != std::end(kOfMany)) continue;
      for (const std::string_view known : names_in("")) {
        if (contains_value(known, word, '_')) return known;
      }
    }
    return {};
  }

  void check_known(const Json& value, const std::string& path, const ConfigKey& key) {
    const size_t before = out_.errors.size();
    check_key(value, path, key);
    const bool has_error = out_.errors.size() > before;
    const std::string key_path(key.path);
    if (has_error && out_.values.count(key_path) == 0) out_.bad.insert(key_path);
  }

  // Checks cpu_offload: true, false or null.
  void check_cpu_device(const Json& value, const std::string& path, const ConfigKey& key) {
    if (!value.is_boolean() && !value.is_null()) {
      add_error(path, "expected true or false, found {}", describe(value));
    } else if (value == true) {
      const Json meant = {{"device", "cpu"}};
      warn(out_.notes, path, "{} true is the old form of {} {}", path, key.path, meant.dump());
      check_known(meant, std::string(key.path), key);
    }
  }

  void check_key(const Json& value, const std::string& path, const ConfigKey& key) {
    if (key.path == "zero_optimization" && value.is_boolean()) {
      const int stage = value.get<bool>() ? 1 : 0;
      out_.values["zero_optimization.stage"] = stage;
      warn(out_.notes, path, "{}: {} is the old form of {{\"stage\": {}}}", path, quoted(value),
           stage);
    } else if (key.state == KeyState::kRefused) {
      check_refused(value, path, key);
    } else if (value == "auto" && key.field.type != KeyType::kSection) {
      check_auto(path, key);
    } else if (value.is_null() && may_be_null(key)) {
      return;
    } else {
      check_value(value, path, key);
    }
  }

  static bool may_be_null(const ConfigKey& key) {
    const bool has_list = key.field.type == KeyType::kString;
    return key.default_value == "null" || (has_list && is_one_of(nullptr, key.accepts));
  }

  void check_auto(const std::string& path, const ConfigKey& key) {
    if (key.auto_value.empty()) {
      add_error(path, "\"auto\" has no meaning here: give a value (default {})", key.default_value);
    } else if (key.state == KeyState::kHonored) {
      out_.values[std::string(key.path)] = "auto";
    }
  }

  void check_value(const Json& value, const std::string& path, const ConfigKey& key) {
    const std::optional<Json> typed = typed_value(value, key);
    if (!typed) {
      add_error(path, "expected {}, found {}", type_name(key.field.type), describe(value));
    } else if (key.field.type == KeyType::kSection && !key.allowed_keys.empty()) {
      check_idle_section(value, path, key);
    } else if (key.field.type == KeyType::kSection) {
      out_.values[std::string(key.path)] = Json::object();
      check_section(value, path, std::string(key.path));
    } else if (is_map(key)) {
      check_map(value, path, key);
    } else if (!is_accepted(*typed, key)) {
      add_error(path, "expected {}, found {}{}{}", describe_accepted(key), describe(value),
                key.other_values.empty() ? "" : ": ", key.other_values);
    } else if (key.state == KeyState::kHonored) {
      out_.values[std::string(key.path)] = *typed;
    } else if (value != parse_trusted_json(key.default_value)) {
      note(out_.notes, path, "{} {} has no effect: {}", path, quoted(value), key.text);
    }
  }

  static bool is_map(const ConfigKey& key) {
    return key.field.type == KeyType::kIntegerMap || key.field.type == KeyType::kNumberMap;
  }

  // Checks an object whose names are free. Each of its values is a number of one type and range.
  void check_map(const Json& value, const std::string& path, const ConfigKey& key) {
    ConfigKey one = key;
    const bool integers = key.field.type == KeyType::kIntegerMap;
    one.field.type = integers ? KeyType::kInteger : KeyType::kNumber;
    const size_t before = out_.errors.size();
    Json checked = Json::object();
    for (const auto& [name, number] : value.items()) {
      if (is_comment(name)) continue;
      const std::optional<Json> typed = typed_value(number, one);
      if (typed && is_accepted(*typed, one)) {
        checked[name] = *typed;
      } else {
        add_error(join(path, shortened(name)), "expected {}, found {}", describe_accepted(one),
                  describe(number));
      }
    }
    if (out_.errors.size() == before) out_.values[std::string(key.path)] = std::move(checked);
  }

  void check_refused(const Json& value, const std::string& path, const ConfigKey& key) {
    if (key.field.type == KeyType::kSection) {
      check_refused_section(value, path, key);
    } else if (!is_one_of(value, key.default_value) && !is_one_of(value, key.accepts)) {
      add_error(path, "{} is refused: {}; accepted: {}{}", quoted(value), key.text,
                key.default_value, key.accepts.empty() ? "" : fmt::format(" | {}", key.accepts));
    }
  }

  void check_refused_section(const Json& value, const std::string& path, const ConfigKey& key) {
    if (value.is_null()) return;
    if (!value.is_object()) {
      add_error(path, "expected {}, found {}", type_name(key.field.type), describe(value));
      return;
    }
    const std::vector<Switch> switches = parse_switches(key);
    std::vector<std::string_view> allowed_keys = split_values(key.allowed_keys, ' ');
    const Switch* on = nullptr;
    for (const Switch& one : switches) {
      allowed_keys.push_back(one.name);
      const auto found = value.find(one.name);
      if (found != value.end() && !is_one_of(*found, one.off)) on = &one;
    }
    if (on != nullptr || switches.empty()) {
      add_error(path, "refused: {}; leave the section out{}", key.text,
                on == nullptr ? "" : fmt::format(" or set {} to {}", on->name, on->off));
    }
    check_names(value, path, "", allowed_keys);
  }

  // Checks an idle section. Only the entries that enable it are read.
  void check_idle_section(const Json& value, const std::string& path, const ConfigKey& key) {
    std::vector<std::string_view> allowed_keys = split_values(key.allowed_keys, ' ');
    for (const Switch& one : parse_switches(key)) {
      allowed_keys.push_back(one.name);
      const auto found = value.find(one.name);
      if (found == value.end() || found->is_null() || *found == "auto") continue;
      if (found->is_boolean()) {
        out_.values[join(key.path, one.name)] = *found;
      } else {
        add_error(join(path, one.name), "expected true or false, found {}", describe(*found));
      }
    }
    check_names(value, path, "", allowed_keys);
  }

  // Checks names only: values in a disabled section have no effect.
  void check_names(const Json& object, const std::string& path, const std::string& relative,
                   const std::vector<std::string_view>& allowed_keys) {
    for (const auto& [name, value] : object.items()) {
      if (is_comment(name)) continue;
      const std::string inner = join(relative, name);
      const bool open = std::any_of(
          allowed_keys.begin(), allowed_keys.end(),
          [&](std::string_view known) { return known == "*" || known == inner + ".*"; });
      if (open) continue;
      if (std::find(allowed_keys.begin(), allowed_keys.end(), inner) == allowed_keys.end()) {
        const std::string_view near = guesses_.take() ? nearest_name(inner, allowed_keys) : "";
        add_error(join(path, shortened(name)), "unknown key{}",
                  near.empty() ? "" : fmt::format("; did you mean {}?", near));
      } else if (value.is_object()) {
        check_names(value, join(path, name), inner, allowed_keys);
      }
    }
  }

  static constexpr size_t kMistyped = 2;  // maximum letters by which a name is mistyped

  CheckedKeys& out_;
  SuggestionBudget guesses_;
  std::map<std::string, std::string> seen_;  // path in the table -> path in the file
};

}  // namespace

CheckedKeys check_keys(const Json& root, const std::string& name) {
  CheckedKeys out;
  out.name = name;
  if (root.is_object()) {
    Checker(out).check_section(root, "", "");
  } else {
    out.errors.push_back("expected an object at the top level, found " + describe(root));
  }
  return out;
}

}  // namespace zeroth::configs
