#include "configs/inspect.h"

#include <algorithm>
#include <set>

#include "base/json/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

// Returns the number of ranks that elasticity or the batch sizes imply, otherwise those that share
// samples.
int64_t assumed_ranks(const CheckedKeys& keys) {
  const auto size = [&](const char* path) {
    return std::max<int64_t>(1, keys.get<int64_t>(path).value_or(1));
  };
  const int64_t sharing = size("tensor_parallel.autotp_size") * size("pipeline.stages");
  if (const auto ranks = elastic_ranks(keys, sharing)) return *ranks;
  const auto batch = keys.get<int64_t>("train_batch_size");
  const auto micro = keys.get<int64_t>("train_micro_batch_size_per_gpu");
  const auto steps = keys.get<int64_t>("gradient_accumulation_steps");
  if (!batch || !micro || !steps) return sharing;
  return std::max<int64_t>(1, *batch / (*micro * *steps)) * sharing;
}

std::string value_at(const Json& root, std::string_view path) {
  const Json* value = &root;
  for (const std::string_view name : split_values(path, '.')) {
    if (!value->is_object() || !value->contains(name)) return {};
    value = &(*value)[std::string(name)];
  }
  return value->dump();
}

bool has_error_about(const Inspection& inspection, const std::string& path) {
  return std::any_of(inspection.errors.begin(), inspection.errors.end(),
                     [&](const std::string& message) {
                       return message.starts_with(path + ":") || message.starts_with(path + ".");
                     });
}

class Inspector {
 public:
  Inspector(const Context& context, const Config& config, Inspection& out)
      : keys_(context.keys),
        origins_(all_origins(context)),
        resolved_(parse_trusted_json(to_json(config))),
        out_(out) {}

  void report() {
    std::set<std::string_view> seen;
    for (const FileKey& given : keys_.given) {
      if (given.key != nullptr) seen.insert(given.key->path);
      const bool opened = given.value.is_object() && given.key != nullptr &&
                          given.key->field.type == KeyType::kSection &&
                          given.key->state != KeyState::kRefused && given.key->allowed_keys.empty();
      if (!opened) out_.given.push_back(of_given(given));
    }
    for (const ConfigKey& key : keys()) {
      if (key.state != KeyState::kHonored || seen.count(key.path) > 0) continue;
      const std::string value = value_at(resolved_, key.path);
      if (key.field.type == KeyType::kSection || value.empty()) continue;
      out_.by_default.push_back(
          {std::string(key.path), "honoured", value, origins_.at(std::string(key.path))});
    }
  }

 private:
  KeyReport of_given(const FileKey& given) const {
    KeyReport report{given.path, "unknown", quoted(given.value), ""};
    if (given.key == nullptr) {
      if (!has_error_about(out_, given.path)) report.origin = "ignored, as by DeepSpeed";
      return report;
    }
    const ConfigKey& key = *given.key;
    const bool refused =
        has_error_about(out_, given.path) || has_error_about(out_, std::string(key.path));
    report.origin = key.text;
    switch (key.state) {
      case KeyState::kHonored:
        report.state = refused ? "refused" : "honoured";
        report.origin = given.value == "auto" ? origin_of_auto(key, report.value) : "file";
        break;
      case KeyState::kNoEffect:
        report.state = "no effect";
        if (!key.allowed_keys.empty()) describe_idle_section(key, refused, report);
        break;
      case KeyState::kRefused:
        report.state = refused ? "refused" : "off";
        break;
    }
    return report;
  }

  // Shows the switches only: other values may be secrets of a service.
  void describe_idle_section(const ConfigKey& key, bool refused, KeyReport& report) const {
    Json shown = Json::object();
    const std::vector<Switch> switches = parse_switches(key);
    bool on = switches.empty();
    for (const Switch& one : switches) {
      const auto value = keys_.get<bool>(fmt::format("{}.{}", key.path, one.name));
      if (value) shown[std::string(one.name)] = *value;
      on = on || value.value_or(false);
    }
    report.value = shown.dump();
    report.state = refused ? "refused" : on ? "no effect" : "off";
  }

  // Resolves only values of "auto" that depend on neither flags, model nor run.
  std::string origin_of_auto(const ConfigKey& key, std::string& value) const {
    const std::string path(key.path);
    if (key.auto_value == "the default") value = value_at(resolved_, path);
    return fmt::format("auto: {}", key.auto_value);
  }

  const CheckedKeys& keys_;
  const Origins origins_;
  const Json resolved_;
  Inspection& out_;
};

}  // namespace

Config resolve_model_parallel(const Document& document, const FlagValues& flags) {
  Context context{.keys = document.keys(), .flags = flags, .facts = {}, .facts_known = false};
  Config config;
  fill_mesh(context, config);
  return config;
}

Inspection inspect(const Document& document, std::optional<int64_t> ranks,
                   const FlagValues& flags) {
  Context context{.keys = document.keys(),
                  .flags = flags,
                  .facts = {.world_size = ranks.value_or(assumed_ranks(document.keys()))},
                  .facts_known = false,
                  .notes = document.keys().notes};
  const Config config = fill(context);
  Inspection inspection;
  inspection.errors = all_errors(context);
  const int64_t world_size = context.facts.world_size, data = context.data_ranks;
  if (data > 0 && data < world_size) {
    const int64_t stages = config.pipeline.stages, tensor = config.tensor_parallel.size;
    if (stages > 1) {
      note(context.notes, "pipeline.stages",
           "pipeline.stages {0}: checked for {1} ranks, pipeline {0} x data {2} x tensor {3}",
           stages, world_size, data, tensor);
    } else {
      note(context.notes, "tensor_parallel.autotp_size",
           "tensor_parallel.autotp_size {0}: checked for {1} ranks, data {2} x tensor {0}", tensor,
           world_size, data);
    }
  }
  inspection.notes = diagnostic_lines(context.notes);
  Inspector(context, config, inspection).report();
  return inspection;
}

}  // namespace zeroth::configs
