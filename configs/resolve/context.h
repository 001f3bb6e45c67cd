// Shared state and functions of the parts of resolve: the checked file, the flags, the facts, and
// the diagnostics found.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/defaults.h"
#include "configs/resolve.h"
#include "configs/schema/check.h"

namespace zeroth::configs {

inline constexpr double kDefaultLr = 5e-5;  // default of --lr

// A Context collects inputs, errors, notes and origins of one resolution.
struct Context {
  const CheckedKeys& keys;
  const FlagValues& flags;
  RunFacts facts;
  // False: hidden_size and total_steps are not known yet, and their absence is no error.
  bool facts_known = true;
  std::vector<std::string> errors = {};
  Diagnostics notes = {};
  // Origins, by path, of values that come neither from the file nor from the key's default.
  Origins origins = {};
  // Prefixes of errors of the key check that are not reported: those about sections of an unknown
  // type, and about keys of a disabled section.
  std::vector<std::string> suppressed = {};
  // The value of data_ranks(), set once tensor_parallel is filled. 0: unknown after an error.
  int64_t data_ranks = 0;
  int64_t rank_batch = 0;  // Resolved::rank_batch

  template <typename... Args>
  void add_error(fmt::format_string<Args...> format, Args&&... args) {
    errors.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns the file's value, otherwise the flag's. Adds an error if both are given and differ.
  template <typename T>
  std::optional<T> resolve_value(const std::string& path, const std::optional<T>& flag,
                                 const char* flag_name) {
    const std::optional<T> value = keys.get<T>(path);
    if (value && flag && *value != *flag) {
      add_error("{}: {} in the file, but {} {}; make them equal or write \"auto\" in the file",
                path, shown(*value), flag_name, shown(*flag));
    }
    if (!value && (flag || keys.is_auto(path))) {
      origins[path] = flag ? flag_name : fmt::format("default of {}", flag_name);
    }
    return value ? value : flag;
  }

  // Returns where a user changes a value: its key, or the flag that gave it.
  const char* key_or_flag(const char* path, const char* flag) const {
    return keys.get<int64_t>(path) ? path : flag;
  }

  // Reads the file's value into `into` if the file has one.
  template <typename T>
  void read(const std::string& path, T& into) {
    into = keys.get<T>(path).value_or(into);
  }

  template <typename T>
  static std::string shown(const T& value) {
    return nlohmann::ordered_json(value).dump();
  }
};

using TypeNames = std::vector<std::string_view>;

// Returns the "type" at `path` in the spelling of `known`. Returns nullopt if it is absent or
// invalid, or after it adds an error.
std::optional<std::string> parse_type(Context& context, const std::string& path,
                                      const TypeNames& known, const TypeNames& unsupported,
                                      bool any_case);

// Return names such as "bf16", "warning" and "cpu".
const char* to_string(Precision precision);
const char* to_string(LogLevel level);
const char* to_string(OffloadDevice device);

// Adds an error for each key in the section's params that the type does not accept.
void check_params(Context& context, const std::string& section, std::string_view type,
                  std::string_view takes);

// Parses a dtype; "fp16" and "float16" are equal. The key table accepts no other names.
Precision parse_precision(const std::string& name);

// Fills the section. Adds an error if the ranks cannot be partitioned into groups of its size.
void fill_tensor_parallel(Context& context, Config& config);

// Returns "2 ranks" or "1 data rank": the ranks over which the batch is partitioned.
std::string describe_ranks(const Context& context);

// Returns the three batch values by DeepSpeed's rules. Adds an error if they do not fit together.
BatchConfig fill_batch(Context& context);  // call after fill_tensor_parallel()

// Returns whether the section elasticity chooses the batch.
bool is_elastic(const CheckedKeys& keys);
// Returns a number of ranks that elasticity allows, or nullopt if it allows none or is disabled.
std::optional<int64_t> elastic_ranks(const CheckedKeys& keys, int64_t tensor_parallel_size);
// Returns the batch that elasticity chooses. Adds an error if the section is invalid, does not
// allow the ranks, conflicts with an explicit batch, or differs from a scheduler's copy.
BatchConfig fill_elastic_batch(Context& context, int64_t tensor_parallel_size);
// Suppresses errors about values in the disabled section elasticity. Unknown names remain errors.
void ignore_disabled_elasticity(Context& context);

// Each function below fills its part of the Config from a section.
void fill_precision(Context& context, Config& config);
void fill_optimizer(Context& context, Config& config);
void fill_scheduler(Context& context, Config& config);  // call after fill_optimizer()
// Returns the schedule of the flags. `lr` is the optimizer's.
HfSchedule resolve_hf_schedule(Context& context, HfSchedule::Type type, int64_t warmup_steps,
                               double lr);
void fill_gradients(Context& context, Config& config);
void fill_zero(Context& context, Config& config);
void fill_offload(Context& context, Config& config);  // call after fill_zero()
void fill_recompute(Context& context, Config& config);
// Returns Resolved::services.
std::vector<std::string> enabled_services(const CheckedKeys& keys);
void fill_report(Context& context, Config& config);  // printing, monitors, profilers

// Fills every value that can be known. Errors are in the context and in its keys.
Config fill(Context& context);

// Returns the errors of the file, followed by those about inconsistent values.
std::vector<std::string> all_errors(const Context& context);

// Returns whether the stage leaves offload_param without effect.
bool ignores_offload_param(const Context& context, const ZeroConfig& zero);

// Returns the origin of every honored key.
Origins all_origins(const Context& context);

// Checks the ranges of the flags.
void check_flags(Context& context);

// Checks rules that join several keys.
void validate(Context& context, const Config& config);
void check_offload(Context& context, const Config& config);  // part of validate()
void check_tensor_parallel(Context& context, const Config& config);

}  // namespace zeroth::configs
