// The table of all keys of a ds_config.json: DeepSpeed's schema, with each key in one of three
// states. The checker and docs/config.md follow this table. A key outside it is an error, or a
// warning at the top level, where DeepSpeed ignores it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::configs {

struct Config;

enum class KeyType {
  kBool,
  kInteger,
  kNumber,
  kString,
  kChoice,  // one of the JSON values in ConfigKey::accepts
  kPair,
  kList,
  kNames,  // a string, or a list of names
  kIntegers,
  kIntegerOrList,  // checked: a list
  kIntegerMap,     // an object whose names are free
  kNumberMap,      // likewise
  kSection
};

enum class KeyState {
  // The key has the same effect as in DeepSpeed.
  kHonored,
  // The key is accepted; a value other than the default causes one note.
  kNoEffect,
  // The key would change the training or is not supported yet: an error unless it is disabled.
  kRefused,
};

// A Field is the type of a key's value, and the member of a Config that holds it.
struct Field {
  KeyType type = KeyType::kBool;
  // Returns the member as a JSON value. Null: the key has no member.
  nlohmann::ordered_json (*get)(const Config&) = nullptr;
  // Sets the member to a value of the key's type. Null: the value needs more than the key alone.
  void (*set)(const nlohmann::ordered_json& value, Config&) = nullptr;
};

// OnResume says whether a value may differ when a run resumes.
enum class OnResume {
  kAsSection,  // what the section of the key says; at the top level kMayDiffer
  kMayDiffer,
  kMustEqual,
  kMustEqualUnlessAllowed,  // --allow-change lets it differ
};

// A ConfigKey is one row of the table: everything that is known about a key.
struct ConfigKey {
  std::string_view path;  // "zero_optimization.stage"
  Field field = {};
  KeyState state = KeyState::kHonored;
  std::string_view default_value = {};  // as JSON; the key may be null if it is null
  // Accepted values. Numbers, also of a list or a map: a range, "> 0", ">= 0", "0..3", "[0, 1)".
  // Other honored and refused keys: JSON values separated by '|' that are accepted besides the
  // default. Refused and idle sections: the entries, separated by ',', that disable them,
  // "enabled = false".
  std::string_view accepts = {};
  std::string_view auto_value = {};  // resolved value of "auto"; empty: "auto" is an error
  std::string_view text = {};        // meaning, or why the key has no effect or is refused
  std::string_view flag = {};        // flag of finetune that sets an absent or "auto" value
  OnResume on_resume = OnResume::kAsSection;
  // Keys that a refused section may contain while it is disabled, and an idle one always, as paths
  // relative to it. "a.*" means anything below a.
  std::string_view allowed_keys = {};
  bool any_case = false;  // honored and idle strings: case does not matter
  // Why values outside `accepts` are refused. It follows the error about one.
  std::string_view other_values = {};
};

// An Alias is another accepted spelling of a key.
struct Alias {
  enum class Kind {
    kSame,
    kDeprecated,  // accepted with a warning
    kCpuDevice,   // old: true means {"device": "cpu"}; accepted with a warning
  };
  std::string_view other;  // accepted spelling
  std::string_view path;   // path in the table
  Kind kind = Kind::kSame;
};

// Return the table and its aliases in the order of docs/config.md: parents before children.
const std::vector<ConfigKey>& keys();
const std::vector<Alias>& aliases();

// Return the key or alias, or null if the table has none.
const ConfigKey* find_key(std::string_view path);
const Alias* find_alias(std::string_view other);

// Returns a key that the table has.
const ConfigKey& key_at(std::string_view path);

// Return and set the value of a key that has a member, as a file spells it.
nlohmann::ordered_json value_of(const Config& config, std::string_view path);
void set_value(Config& config, std::string_view path, const nlohmann::ordered_json& value);

// Returns whether a value must be the same when a run resumes, unless --allow-change lets it
// differ. A path that the table does not have is in the sections that it names.
bool must_equal_on_resume(std::string_view path);

// Returns whether --allow-change may name a key or one of the sections that it is in.
bool is_changeable_on_resume(std::string_view path);

// Returns the last components of the keys and aliases directly below `section` ("" for the top
// level).
std::vector<std::string_view> names_in(std::string_view section);

// Returns whether a number is in a range as spelled in ConfigKey::accepts. An empty range contains
// all finite numbers.
bool in_range(double value, std::string_view range);

// A Switch is an entry that disables a refused or idle section, with the JSON texts that do so,
// separated by '|'.
struct Switch {
  std::string_view name, off;
};
std::vector<Switch> parse_switches(const ConfigKey& key);

// Returns the parts of a list separated by `separator`, trimmed.
std::vector<std::string_view> split_values(std::string_view list, char separator = '|');

// Returns whether `value` is one of these parts.
bool contains_value(std::string_view list, std::string_view value, char separator);

}  // namespace zeroth::configs
