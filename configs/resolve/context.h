// Shared state and functions of the parts of resolve: the checked file, the flags, the facts, and
// the diagnostics found.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/resolve.h"
#include "configs/schema/check.h"
#include "configs/schema/enum_names.h"

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
  // The value of data_ranks(), set by fill_mesh(). 0: unknown after an error.
  int64_t data_ranks = 0;
  int64_t rank_batch = 0;  // Resolved::rank_batch

  template <typename... Args>
  void add_error(fmt::format_string<Args...> format, Args&&... args) {
    errors.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns the file's value, otherwise the flag's. Adds an error if both are given and differ.
  // `flag_name` is for messages; empty: the key's flag.
  template <typename T>
  std::optional<T> resolve_value(const std::string& path, const std::optional<T>& flag,
                                 std::string_view flag_name = "") {
    if (flag_name.empty()) flag_name = find_key(path)->flag;
    const std::optional<T> value = keys.get<T>(path);
    if (value && flag && *value != *flag) {
      add_error("{}: {} in the file, but {} {}; make them equal or write \"auto\" in the file",
                path, shown(*value), flag_name, shown(*flag));
    }
    if (!value && (flag || keys.is_auto(path))) {
      origins[path] = fmt::format("{}{}", flag ? "" : "default of ", flag_name);
    }
    return value ? value : flag;
  }

  // Returns where a user changes a number: its key, or the flag that gave it.
  std::string_view key_or_flag(std::string_view path) const {
    return keys.get<double>(std::string(path)) ? path : find_key(path)->flag;
  }

  // Sets the member of a key if the file has a value for it other than "auto".
  void read(const ConfigKey& key, Config& config) const {
    const auto found = keys.values.find(std::string(key.path));
    if (key.field.set == nullptr || found == keys.values.end() || found->second == "auto") return;
    key.field.set(found->second, config);
  }

  template <typename T>
  static std::string shown(const T& value) {
    return nlohmann::ordered_json(value).dump();
  }
};

using TypeNames = std::vector<std::string_view>;

// Returns the index in `known` of the "type" at `path`. Returns nullopt if it is absent or invalid,
// or after it adds an error.
std::optional<size_t> parse_type(Context& context, const std::string& path, const TypeNames& known,
                                 const TypeNames& unsupported, bool any_case);

// Adds an error for each key in the section's params that the type does not accept.
void check_params(Context& context, const std::string& section, std::string_view type,
                  std::string_view takes);

// Fills the sections tensor_parallel and pipeline. Adds an error if the ranks cannot be partitioned
// into groups of Config::sharing_ranks().
void fill_mesh(Context& context, Config& config);
void fill_tensor_parallel(Context& context, Config& config);  // for fill_mesh()
void check_pipeline(Context& context, const Config& config);

// Returns "2 ranks" or "1 data rank": the ranks over which the batch is partitioned.
std::string describe_ranks(const Context& context);

struct RequestedBatch {
  std::optional<int64_t> batch, micro, steps;
};
// Returns the three batch values, of which those that are not requested follow from the others.
BatchConfig fill_missing(const RequestedBatch& requested, int64_t ranks);

// Returns the three batch values by DeepSpeed's rules. Adds an error if they do not fit together.
BatchConfig fill_batch(Context& context);  // call after fill_mesh()

// Returns whether the section elasticity chooses the batch.
bool is_elastic(const CheckedKeys& keys);
// Returns a number of ranks that elasticity allows, or nullopt if it allows none or is disabled.
std::optional<int64_t> elastic_ranks(const CheckedKeys& keys, int64_t sharing_ranks);
// Returns the batch that elasticity chooses. Adds an error if the section is invalid, does not
// allow the ranks, conflicts with an explicit batch, or differs from a scheduler's copy.
BatchConfig fill_elastic_batch(Context& context, int64_t sharing_ranks);
// Suppresses errors about values in the disabled section elasticity. Unknown names remain errors.
void ignore_disabled_elasticity(Context& context);

// Each function below completes its part of the Config: values that need more than their key.
void fill_precision(Context& context, Config& config);
void check_dtypes(Context& context, const Config& config);  // call after fill_precision()
void fill_optimizer(Context& context, Config& config);
// Return the names of the params that a type accepts, separated by spaces. A schedule that a file
// cannot request accepts none.
std::string_view optimizer_params(const Config& config);
std::string_view scheduler_params(const Config& config);
void fill_scheduler(Context& context, Config& config);  // call after fill_optimizer()
// Returns the schedule of the flags. `lr` is the optimizer's.
HfSchedule resolve_hf_schedule(Context& context, HfSchedule::Type type, int64_t warmup_steps,
                               double lr);
std::string hf_text(const HfSchedule& schedule);  // part of schedule_text()
void fill_zero(Context& context, Config& config);
void fill_lora(Context& context, Config& config);
void fill_quantization(Context& context, Config& config);
// Returns Resolved::services.
std::vector<std::string> enabled_services(const CheckedKeys& keys);
void check_report(Context& context, const Config& config);  // monitors, profilers

// Fills every value that can be known. Errors are in the context and in its keys.
Config fill(Context& context);

// Returns the errors of the file, followed by those about inconsistent values.
std::vector<std::string> all_errors(const Context& context);

// Returns the origin of every honored key.
Origins all_origins(const Context& context);

// Checks the ranges of the flags.
void check_flags(Context& context);

// Checks rules that join several keys: those below, each in the file of its section, and others.
void validate(Context& context, const Config& config);
void check_precision(Context& context, const Config& config);
void check_optimizer(Context& context, const Config& config);
void check_schedule(Context& context, const Config& config);
void check_offload(Context& context, const Config& config);
void check_tensor_parallel(Context& context, const Config& config);
void check_lora(Context& context, const Config& config);

}  // namespace zeroth::configs
