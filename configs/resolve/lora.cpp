// Resolution of the sections lora and quantization: adapters, and weights in 4 bits, by the file
// and by TRL's flags.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "configs/resolve/context.h"
#include "configs/schema/field.h"

namespace zeroth::configs {
namespace {

constexpr char kTargets[] = "lora.target_modules";
constexpr char kToSave[] = "lora.modules_to_save";

// Values of a run that --use_peft starts, which are TRL's. The key table has peft's.
constexpr int64_t kRank = 16;
constexpr double kAlpha = 32;
constexpr double kDropout = 0.05;

// Returns the names after a flag; nullopt if it is not given.
std::optional<ModuleNames> names_of(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  return nlohmann::ordered_json(words).get<ModuleNames>();
}

// Returns the modules after --lora_target_modules. TRL passes a single word to peft as a text, that
// is, as all-linear or as a regular expression of whole paths. A plain word such as q_proj would
// match no path in peft. Here it is a list of one name, which is what its user means.
std::optional<ModuleNames> targets_of(const std::vector<std::string>& words) {
  if (words.size() != 1) return names_of(words);
  const auto text = nlohmann::ordered_json(words.front()).get<ModuleNames>();
  const bool is_plain = text.pattern.find_first_of(".*+?[](){}|^$\\") == std::string::npos;
  return text.is_all_linear() || !is_plain ? text : names_of(words);
}

// Returns the flags about adapters that are given, as for a message.
std::string given_flags(const FlagValues& flags) {
  std::vector<std::string_view> names;
  const auto add = [&](const char* path, bool given) {
    if (given) names.push_back(key_at(path).flag);
  };
  add("lora.r", flags.lora_r.has_value());
  add("lora.lora_alpha", flags.lora_alpha.has_value());
  add("lora.lora_dropout", flags.lora_dropout.has_value());
  add("lora.use_rslora", flags.use_rslora == true);
  add(kTargets, !flags.lora_target_modules.empty());
  add(kToSave, !flags.lora_modules_to_save.empty());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Sets a number to the file's value, otherwise to the flag's, otherwise to the default: TRL's with
// --use_peft, and peft's, which it has, without.
template <typename T>
void fill_number(Context& context, const std::string& path, const std::optional<T>& flag, T of_trl,
                 T& number) {
  const std::optional<T> value = context.resolve_value(path, flag);
  if (value) {
    number = *value;
  } else if (context.flags.use_peft) {
    number = of_trl;
    context.origins[path] = fmt::format("default of {}", key_at(path).flag);
  } else if (context.keys.is_auto(path)) {
    context.origins[path] = "peft's default";
  }
}

// Returns where a user changes the modules with adapters.
std::string_view targets_key_or_flag(const Context& context) {
  const bool of_file = context.keys.values.count(kTargets) > 0 && !context.keys.is_auto(kTargets);
  return of_file ? kTargets : key_at(kTargets).flag;
}

void check_targets(Context& context, const LoraConfig& lora) {
  const std::string_view where = targets_key_or_flag(context);
  const auto& names = lora.target_modules.names;
  if (where == kTargets && !lora.target_modules.is_set()) {
    context.add_error("{}: selects no module: name some, or leave it out for the usual ones",
                      where);
  }
  if (std::find(names.begin(), names.end(), kAllLinear) != names.end()) {
    context.add_error("{}: all-linear is no name in a list: write it alone{}", where,
                      where == kTargets ? ", as a string" : "");
  }
}

void check_layers(Context& context, const LoraConfig& lora) {
  constexpr char kLayers[] = "lora.layers_to_transform";
  constexpr char kPattern[] = "lora.layers_pattern";
  const auto is_set = [&](const char* path) {
    const auto found = context.keys.values.find(path);
    return found != context.keys.values.end() && !found->second.empty() && found->second != "";
  };
  if (!is_set(kLayers)) {
    if (is_set(kPattern) && !context.keys.is_bad(kLayers)) {
      context.add_error("{}: has no effect alone: give {}, or leave it out", kPattern, kLayers);
    }
  } else if (!lora.target_modules.pattern.empty()) {
    context.add_error(
        "{}: needs names, but {} is {}, which selects layers by itself: write a list of names, or "
        "leave {} out",
        kLayers, targets_key_or_flag(context), Context::shown(lora.target_modules), kLayers);
  }
}

// Returns the keys that the table has, with a value.
nlohmann::ordered_json known_keys(const nlohmann::ordered_json& keys) {
  nlohmann::ordered_json known = nlohmann::ordered_json::object();
  for (const auto& [name, value] : keys.items()) {
    if (!value.is_null() && find_key("lora." + name) != nullptr) known[name] = value;
  }
  return known;
}

}  // namespace

LoraConfig parse_adapter_config(const nlohmann::ordered_json& keys, const std::string& name) {
  nlohmann::ordered_json root;
  root["lora"] = known_keys(keys);
  const CheckedKeys checked = check_keys(root, name);
  std::vector<std::string> errors = checked.errors;
  Config config;
  config.lora.enabled = true;
  for (const auto& [path, value] : checked.values) {
    const ConfigKey& key = key_at(path);
    if (value == "auto" && key.field.type != KeyType::kSection) {
      errors.push_back(path + ": \"auto\" has no meaning in the files of an adapter");
    } else if (key.field.set != nullptr) {
      key.field.set(value, config);
    }
  }
  if (root["lora"].contains("target_modules") && !checked.is_bad(kTargets) &&
      !config.lora.target_modules.is_set()) {
    errors.push_back("lora.target_modules: selects no module");
  }
  if (errors.empty()) return config.lora;
  for (std::string& error : errors) error = error.substr(std::string_view("lora.").size());
  throw Error("{}:\n  {}", name, listed(errors));
}

void fill_lora(Context& context, Config& config) {
  const FlagValues& flags = context.flags;
  LoraConfig& lora = config.lora;
  if (context.keys.is_bad("lora")) return;
  lora.enabled = flags.use_peft || context.keys.has("lora");
  if (!lora.enabled) {
    if (const std::string given = given_flags(flags); !given.empty()) {
      context.add_error(
          "{}: no effect without adapters: add --use_peft, or the section \"lora\": {{}} to the "
          "file",
          given);
    }
    return;
  }
  fill_number(context, "lora.r", flags.lora_r, kRank, lora.r);
  fill_number(context, "lora.lora_alpha", flags.lora_alpha, kAlpha, lora.alpha);
  fill_number(context, "lora.lora_dropout", flags.lora_dropout, kDropout, lora.dropout);
  lora.use_rslora = context.resolve_value("lora.use_rslora", flags.use_rslora).value_or(false);
  lora.target_modules = context.resolve_value(kTargets, targets_of(flags.lora_target_modules))
                            .value_or(ModuleNames{});
  lora.modules_to_save = context.resolve_value(kToSave, names_of(flags.lora_modules_to_save))
                             .value_or(ModuleNames{})
                             .names;
}

void fill_quantization(Context& context, Config& config) {
  constexpr char kLoad[] = "quantization.load_in_4bit";
  constexpr char kType[] = "quantization.bnb_4bit_quant_type";
  constexpr char kDouble[] = "quantization.bnb_4bit_use_double_quant";
  const FlagValues& flags = context.flags;
  QuantizationConfig& quantization = config.quantization;
  if (context.keys.is_bad("quantization")) return;
  quantization.nf4_weights =
      context.resolve_value(kLoad, flags.load_in_4bit ? std::optional(true) : std::nullopt)
          .value_or(false);
  quantization.nested_scales =
      context.resolve_value(kDouble, flags.use_bnb_nested_quant).value_or(false);
  const std::string& type = flags.bnb_4bit_quant_type;
  if (!type.empty() && type != quantization.type) {
    context.add_error("--bnb_4bit_quant_type {}: weights in 4 bits are nf4", shortened(type));
  }
  if (!quantization.nf4_weights) {
    if (!quantization.nested_scales && type.empty()) return;
    const std::string_view given = !type.empty()                        ? key_at(kType).flag
                                   : flags.use_bnb_nested_quant == true ? key_at(kDouble).flag
                                                                        : kDouble;
    context.add_error(
        "{}: no effect without weights in 4 bits: add --load_in_4bit, or {} to the file", given,
        kLoad);
    return;
  }
  const bool in_file = context.keys.values.count(kLoad) > 0 && !context.keys.is_auto(kLoad);
  const bool has_type = context.keys.values.count(kType) > 0 || context.keys.is_bad(kType);
  if (in_file && !has_type && type.empty()) {
    context.add_error(
        "{}: is not given, and its default fp4 is not supported: add \"bnb_4bit_quant_type\": "
        "\"nf4\"",
        kType);
  }
}

void check_lora(Context& context, const Config& config) {
  if (!config.lora.enabled) return;
  check_targets(context, config.lora);
  check_layers(context, config.lora);
}

}  // namespace zeroth::configs
