// What the parts of resolve share: the checked file, the flags, the facts, and what they found to
// say.
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

inline constexpr double kDefaultLr = 5e-5;  // the rate of the command line where nobody gives one

struct Context {
  const CheckedKeys& keys;
  const FlagValues& flags;
  RunFacts facts;
  // False: hidden_size and total_steps come later, and nobody may miss them.
  bool facts_known = true;
  std::vector<std::string> errors = {};
  Diagnostics notes = {};
  // Where values come from that are neither in the file nor the key's default, by path.
  Origins origins = {};
  // Sections of an unknown type, and keys of one that is off: what the check said of them is not
  // shown.
  std::vector<std::string> suppressed = {};
  // As data_ranks(), once tensor_parallel is filled. 0: unknown, which is complained of.
  int64_t data_ranks = 0;
  int64_t rank_batch = 0;  // Resolved::rank_batch

  template <typename... Args>
  void add_error(fmt::format_string<Args...> format, Args&&... args) {
    errors.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // The file's value, else the flag's. Both, and different: a complaint.
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

  // Where a user changes a value: its key, or the flag that gave it.
  const char* key_or_flag(const char* path, const char* flag) const {
    return keys.get<int64_t>(path) ? path : flag;
  }

  // The file's value where it has one.
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

// The "type" at `path` in the spelling of `known`; nothing after a complaint or where it is bad.
std::optional<std::string> parse_type(Context& context, const std::string& path,
                                      const TypeNames& known, const TypeNames& unsupported,
                                      bool any_case);

// "bf16", "warning", "cpu".
const char* to_string(Precision precision);
const char* to_string(LogLevel level);
const char* to_string(OffloadDevice device);

// Complains about keys of the section's params that the type does not take.
void check_params(Context& context, const std::string& section, std::string_view type,
                  std::string_view takes);

// "fp16" and "float16" alike; the key table admits nothing else.
Precision parse_precision(const std::string& name);

// Complains where the ranks cannot be dealt into groups of that size.
void fill_tensor_parallel(Context& context, Config& config);

// "2 ranks", "1 data rank": what the batch is dealt over.
std::string describe_ranks(const Context& context);

// The three batch values by DeepSpeed's rules; complains where they do not fit together.
BatchConfig fill_batch(Context& context);  // after tensor_parallel

// Whether the section elasticity chooses the batch.
bool is_elastic(const CheckedKeys& keys);
// A number of ranks that it allows; nothing where it allows none, or is off.
std::optional<int64_t> elastic_ranks(const CheckedKeys& keys, int64_t tensor_parallel_size);
// The batch that it chooses; complains where it is wrong, does not allow the ranks, or stands
// beside a batch that is given, or differs from a scheduler's copy.
BatchConfig fill_elastic_batch(Context& context, int64_t tensor_parallel_size);
// While it is off the section may say what it likes, under names that exist.
void ignore_disabled_elasticity(Context& context);

// The other sections, each into its part of the Config.
void fill_precision(Context& context, Config& config);
void fill_optimizer(Context& context, Config& config);
void fill_scheduler(Context& context, Config& config);  // after the optimizer
// Of the flags; `lr`: the optimizer's.
HfSchedule resolve_hf_schedule(Context& context, HfSchedule::Type type, int64_t warmup_steps,
                               double lr);
void fill_gradients(Context& context, Config& config);
void fill_zero(Context& context, Config& config);
void fill_offload(Context& context, Config& config);  // after zero
void fill_recompute(Context& context, Config& config);
// See Resolved.
std::vector<std::string> enabled_services(const CheckedKeys& keys);
void fill_report(Context& context, Config& config);  // printing, monitors, profilers

// All of it: every value that can be known. What is wrong stands in the context and in its keys.
Config fill(Context& context);

// The complaints about the file and about how its values fit, in this order.
std::vector<std::string> all_errors(const Context& context);

// Whether the stage leaves offload_param without effect.
bool ignores_offload_param(const Context& context, const ZeroConfig& zero);

// Of every honoured key.
Origins all_origins(const Context& context);

// Ranges of the flags.
void check_flags(Context& context);

// Rules that join several keys.
void validate(Context& context, const Config& config);
void check_offload(Context& context, const Config& config);  // its part of them
void check_tensor_parallel(Context& context, const Config& config);

}  // namespace zeroth::configs
