#include "configs/schema/keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text/units.h"
#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

double number(std::string_view text) {
  text = trim(text);
  const auto value = parse_number<double>(text);
  ZEROTH_CHECK(value, "bad bound '{}'", text);
  return *value;
}

std::string_view parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view last_of(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

// Returns the row of a key and those of the sections that it is in, the key's own first.
std::vector<const ConfigKey*> rows_above(std::string_view path) {
  std::vector<const ConfigKey*> rows;
  for (; !path.empty(); path = parent_of(path)) {
    if (const ConfigKey* const row = find_key(path)) rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<ConfigKey> joined(std::initializer_list<std::vector<ConfigKey>> parts) {
  std::vector<ConfigKey> rows;
  for (const auto& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

const std::vector<ConfigKey>& keys() {
  static const std::vector<ConfigKey> all =
      joined({training_rows(), update_rows(), zero_rows(), offload_rows(), gradient_rows(),
              lora_rows(), report_rows(), other_rows()});
  return all;
}

const ConfigKey* find_key(std::string_view path) {
  const auto found = std::find_if(keys().begin(), keys().end(),
                                  [&](const ConfigKey& key) { return key.path == path; });
  return found == keys().end() ? nullptr : &*found;
}

const ConfigKey& key_at(std::string_view path) {
  const ConfigKey* const key = find_key(path);
  ZEROTH_CHECK(key != nullptr, "no key {}", path);
  return *key;
}

nlohmann::ordered_json value_of(const Config& config, std::string_view path) {
  return key_at(path).field.get(config);
}

void set_value(Config& config, std::string_view path, const nlohmann::ordered_json& value) {
  key_at(path).field.set(value, config);
}

const Alias* find_alias(std::string_view other) {
  const auto found = std::find_if(aliases().begin(), aliases().end(),
                                  [&](const Alias& alias) { return alias.other == other; });
  return found == aliases().end() ? nullptr : &*found;
}

bool must_equal_on_resume(std::string_view path) {
  const auto rows = rows_above(path);
  const auto decides = std::find_if(rows.begin(), rows.end(), [](const ConfigKey* row) {
    return row->on_resume != OnResume::kAsSection;
  });
  return decides != rows.end() && (*decides)->on_resume != OnResume::kMayDiffer;
}

bool is_changeable_on_resume(std::string_view path) {
  const auto rows = rows_above(path);
  return std::any_of(rows.begin(), rows.end(), [](const ConfigKey* row) {
    return row->on_resume == OnResume::kMustEqualUnlessAllowed;
  });
}

std::vector<std::string_view> names_in(std::string_view section) {
  std::vector<std::string_view> names;
  const auto add = [&](std::string_view path) {
    if (parent_of(path) == section) names.push_back(last_of(path));
  };
  for (const ConfigKey& key : keys()) add(key.path);
  for (const Alias& alias : aliases()) add(alias.other);
  return names;
}

bool in_range(double value, std::string_view range) {
  constexpr std::string_view kOrInfinity = " or Infinity";
  if (range.ends_with(kOrInfinity)) {
    range.remove_suffix(kOrInfinity.size());
    if (value == INFINITY) return true;
  }
  if (!std::isfinite(value)) return false;
  if (range.empty()) return true;
  if (range.starts_with(">=")) return value >= number(range.substr(2));
  if (range.starts_with(">")) return value > number(range.substr(1));
  if (range.starts_with("[")) {
    const size_t comma = range.find(',');
    return value >= number(range.substr(1, comma - 1)) &&
           value < number(range.substr(comma + 1, range.size() - comma - 2));
  }
  const size_t dots = range.find("..");
  ZEROTH_CHECK(dots != std::string_view::npos, "bad range '{}'", range);
  return value >= number(range.substr(0, dots)) && value <= number(range.substr(dots + 2));
}

std::vector<std::string_view> split_values(std::string_view list, char separator) {
  std::vector<std::string_view> values;
  while (!list.empty()) {
    const size_t end = std::min(list.find(separator), list.size());
    if (const std::string_view value = trim(list.substr(0, end)); !value.empty()) {
      values.push_back(value);
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return values;
}

bool contains_value(std::string_view list, std::string_view value, char separator) {
  const auto values = split_values(list, separator);
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::vector<Switch> parse_switches(const ConfigKey& key) {
  std::vector<Switch> switches;
  for (const std::string_view entry : split_values(key.accepts, ',')) {
    const auto parts = split_values(entry, '=');
    ZEROTH_CHECK(parts.size() == 2, "bad switch '{}'", entry);
    switches.push_back({parts[0], parts[1]});
  }
  return switches;
}

const std::vector<Alias>& aliases() {
  using enum Alias::Kind;
  static const std::vector<Alias> all = {
      {"bfloat16", "bf16", kDeprecated},
      {"allgather_size", "zero_optimization.allgather_bucket_size", kDeprecated},
      {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
      {"zero_optimization.param_persistence_threshold",
       "zero_optimization.stage3_param_persistence_threshold"},
      {"zero_optimization.model_persistence_threshold",
       "zero_optimization.stage3_model_persistence_threshold"},
      {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
      {"zero_optimization.gather_16bit_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save", kDeprecated},
      {"zero_optimization.module_granularity_threshold",
       "zero_optimization.stage3_module_granularity_threshold"},
      {"zero_optimization.use_all_reduce_for_fetch_params",
       "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
      {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
      {"zero_optimization.aio", "aio", kDeprecated},
      {"aio.thread_count", "aio.intra_op_parallelism", kDeprecated},
      {"tensor_parallel.tensor_parallel", "tensor_parallel.tp"},
      {"tensor_parallel.kernel_inject", "tensor_parallel.replace_with_kernel_inject"},
      {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer", kCpuDevice},
      {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param", kCpuDevice},
      {"zero_optimization.cpu_offload_params", "zero_optimization.offload_param", kCpuDevice},
  };
  return all;
}

}  // namespace zeroth::configs
