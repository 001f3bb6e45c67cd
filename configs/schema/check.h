// The check of a configuration file against the key table, key by key. Rules that depend on several
// keys, flags or the model are checked later, in resolve.
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

// A FileKey is a key that appears in a file.
struct FileKey {
  std::string path;      // as the file spells it
  const ConfigKey* key;  // null: unknown
  nlohmann::ordered_json value;
};

// CheckedKeys contains the honored keys of a file under their paths in the table (aliases
// resolved), each of its type: integers as int64, numbers as double, "auto" as itself. A null key
// is omitted; a section is an empty object.
struct CheckedKeys {
  // Name of the file for messages.
  std::string name;
  // False: there is no file.
  bool from_file = true;
  std::map<std::string, nlohmann::ordered_json> values = {};
  // All keys of the file in its order, except those inside a refused or idle section.
  std::vector<FileKey> given = {};
  // Keys of the file with an error: their value is unknown.
  std::set<std::string> bad = {};
  std::vector<std::string> errors = {};
  Diagnostics notes = {};
  // Unknown names at the top level, which DeepSpeed ignores. The first ones are listed, each with
  // its path and a suggestion; num_unknown counts all.
  Diagnostics unknown = {};
  size_t num_unknown = 0;
  // Value of DEEPSPEED_ELASTICITY_CONFIG if it is set: the section elasticity as the cluster
  // scheduler has it.
  std::optional<std::string> scheduler_elasticity = {};

  bool has(const std::string& path) const { return values.count(path) > 0 || is_bad(path); }
  bool is_bad(const std::string& path) const { return bad.count(path) > 0; }
  bool is_auto(const std::string& path) const {
    const auto found = values.find(path);
    return found != values.end() && found->second == "auto";
  }

  // Returns nullopt if the key is absent, null, "auto" or bad.
  template <typename T>
  std::optional<T> get(const std::string& path) const {
    const auto found = values.find(path);
    if (found == values.end() || found->second == "auto") return std::nullopt;
    return found->second.get<T>();
  }
};

CheckedKeys check_keys(const nlohmann::ordered_json& root, const std::string& name);

}  // namespace zeroth::configs
