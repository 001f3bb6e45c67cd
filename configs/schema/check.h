// Holds a configuration file against the key table, key by key. What depends on several keys, flags
// or the model comes after it, in resolve.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "configs/diagnostic.h"
#include "configs/schema/key_value.h"
#include "configs/schema/keys.h"

namespace zeroth::configs {

// A key that stands in a file.
struct FileKey {
  std::string path;      // as the file spells it
  const ConfigKey* key;  // null: unknown
  nlohmann::ordered_json value;
};

// Honoured keys of a file under their paths in the table (aliases resolved), each of its type:
// integers as int64, numbers as double, "auto" as itself. A key that is null is left out; a section
// is there as an empty object.
struct CheckedKeys {
  // Of the file, for messages.
  std::string name;
  // False: there is no file.
  bool from_file = true;
  std::map<std::string, nlohmann::ordered_json> values = {};
  // All keys of the file in its order, but for those within a section that is refused or idle.
  std::vector<FileKey> given = {};
  // Keys that stand in the file with a complaint: their value is unknown.
  std::set<std::string> bad = {};
  std::vector<std::string> errors = {};
  Diagnostics notes = {};
  // Unknown names at the top level, which DeepSpeed ignores: the first ones, each by its path and
  // with what it may have been meant to be, and how many there are.
  Diagnostics unknown = {};
  size_t num_unknown = 0;
  // DEEPSPEED_ELASTICITY_CONFIG where it is set: the section elasticity as whoever shares out
  // machines has it.
  std::optional<std::string> scheduler_elasticity = {};

  bool has(const std::string& path) const { return values.count(path) > 0 || is_bad(path); }
  bool is_bad(const std::string& path) const { return bad.count(path) > 0; }
  bool is_auto(const std::string& path) const {
    const auto found = values.find(path);
    return found != values.end() && found->second == "auto";
  }

  // Nothing when the key is absent, null, "auto" or bad.
  template <typename T>
  std::optional<T> get(const std::string& path) const {
    const auto found = values.find(path);
    if (found == values.end() || found->second == "auto") return std::nullopt;
    return found->second.get<T>();
  }
};

CheckedKeys check_keys(const nlohmann::ordered_json& root, const std::string& name);

}  // namespace zeroth::configs
