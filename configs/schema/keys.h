// The table of every key that a ds_config.json may hold: DeepSpeed's schema, each key in one of
// three states. The checker and docs/config.md follow this table; a key that is not in it is an
// error, or at the top level, where DeepSpeed ignores it, a warning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::configs {

enum class KeyType { kBool, kInteger, kNumber, kString, kPair, kList, kIntegers, kSection };

enum class KeyState {
  // Does what it does in DeepSpeed.
  kHonored,
  // Accepted; another value than the default is answered with one note.
  kNoEffect,
  // Would change the training, or is not supported yet: an error unless it is switched off.
  kRefused,
};

struct ConfigKey {
  std::string_view path;  // "zero_optimization.stage"
  KeyType type = KeyType::kBool;
  KeyState state = KeyState::kHonored;
  std::string_view default_value;  // the default as JSON; a key whose default is null may be null
  // Numbers: a range, "> 0", ">= 0", "0..3", "[0, 1)". Other honoured and refused keys: JSON values
  // separated by '|' that are accepted beside the default. Refused and idle sections: the entries,
  // with ',' between them, that switch them off, "enabled = false".
  std::string_view accepts;
  std::string_view auto_value;  // what "auto" becomes; empty: "auto" is an error
  std::string_view text;        // meaning, or why it has no effect, or why it is refused
  // Refused sections: what may stand inside while it is off, idle ones: at all, as paths relative
  // to it, "a.*" meaning anything below a.
  std::string_view allowed_keys = {};
  bool any_case = false;  // honoured and idle strings: case of letters does not matter
};

struct Alias {
  enum class Kind {
    kSame,
    kDeprecated,  // accepted with a warning
    kCpuDevice,   // old: true means {"device": "cpu"}; accepted with a warning
  };
  std::string_view other;  // accepted spelling
  std::string_view path;   // the one in the table
  Kind kind = Kind::kSame;
};

// In the order of docs/config.md: parents before children.
const std::vector<ConfigKey>& keys();
const std::vector<Alias>& aliases();

// Null when the table has no such path.
const ConfigKey* find_key(std::string_view path);
const Alias* find_alias(std::string_view other);

// Last components of the keys and aliases right below `section` ("" for the top level).
std::vector<std::string_view> names_in(std::string_view section);

// Whether a number lies in a range as spelled in ConfigKey::accepts; an empty range holds all
// finite numbers.
bool in_range(double value, std::string_view range);

// The entries that switch a refused or idle section off, each with the JSON texts that do, '|'
// between.
struct Switch {
  std::string_view name, off;
};
std::vector<Switch> parse_switches(const ConfigKey& key);

// The JSON texts of a list separated by '|', trimmed.
std::vector<std::string_view> split_values(std::string_view list, char separator = '|');

}  // namespace zeroth::configs
