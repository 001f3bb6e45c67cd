// Which modules of a model the patterns of an adapter select, by peft's rules on the paths of
// modules in transformers ("model.layers.0.mlp.up_proj").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "configs/lora_config.h"

namespace zeroth::model {

// A ModulePattern is a regular expression of Python's module re, from an untrusted file. It is
// immutable; several threads may match with one.
class ModulePattern {
 public:
  // `key` is the place of the expression ("lora.target_modules"), which each message names. The
  // expression stands between `before` and `after`, as text. Throws an Error if it is too long or
  // invalid, or has syntax that Python does not have or whose meaning differs here.
  ModulePattern(std::string key, std::string expression, std::string_view before = {},
                std::string_view after = {});

  // These throw an Error that names the expression if it takes too many steps.
  bool full_match(std::string_view path) const;  // re.fullmatch
  bool match(std::string_view path) const;       // re.match: at the begin of the path
  // Returns the text of the group `idx` after re.match, which is empty if the group has none;
  // nullopt if nothing matches.
  std::optional<std::string> match_index(std::string_view path) const;

 private:
  // Returns the data of a match; null if there is none.
  std::shared_ptr<void> find(std::string_view path, unsigned options) const;

  std::string key_, expression_;
  std::shared_ptr<void> code_;
};

// Adds what an Error of a pattern says to `errors`, and returns nullopt then.
std::optional<ModulePattern> compile_pattern(std::vector<std::string>& errors, std::string key,
                                             const std::string& expression,
                                             std::string_view before = {},
                                             std::string_view after = {});

// A TargetMatcher holds the patterns of a section `lora` that decide which modules get adapters.
class TargetMatcher {
 public:
  // Adds each expression that is invalid to `errors`. "all-linear" is no pattern here.
  TargetMatcher(const configs::LoraConfig& config, std::vector<std::string>& errors);

  // Returns whether target_modules is set and valid.
  bool has_targets() const { return targets_.pattern || !targets_.names.empty(); }
  // Returns whether the module is one of exclude_modules.
  bool is_excluded(std::string_view path) const;
  // Returns whether the module is one of modules_to_save, or inside one.
  bool is_saved(std::string_view path) const;
  // Returns whether target_modules, layers_to_transform and layers_pattern select the module.
  bool is_selected(std::string_view path) const;

 private:
  // A pattern, or names that are equal to a path or to its end after a dot.
  struct Names {
    std::optional<ModulePattern> pattern;
    std::set<std::string, std::less<>> names;
    bool has_end_of(std::string_view path) const;
  };
  static Names compile(const configs::ModuleNames& names, const char* key,
                       std::vector<std::string>& errors);
  bool is_in_layers(std::string_view path) const;

  Names targets_, excluded_;
  std::vector<ModulePattern> saved_, layer_patterns_;
  std::set<int64_t> layers_;
};

// The values of a rank_pattern or alpha_pattern.
class PatternMatcher {
 public:
  // Adds each expression that is invalid to `errors`.
  PatternMatcher(const char* key, const configs::PatternValues& values,
                 std::vector<std::string>& errors);

  // Returns the value of the first pattern that matches the end of the path.
  std::optional<double> find(std::string_view path) const;
  // Adds an error for each pattern that matches the end of none of the paths. There is at least one
  // path.
  void check_used(const std::vector<std::string>& paths, std::vector<std::string>& errors) const;

 private:
  struct Entry {
    std::string expression;
    double value = 0;
    ModulePattern pattern;
  };
  std::string key_;
  std::vector<Entry> entries_;
};

// Returns as few ends of `names` as select the same of `paths`, or the names if they are no more.
std::vector<std::string> shortest_ends(const std::vector<std::string>& names,
                                       const std::vector<std::string>& paths);

}  // namespace zeroth::model
