#include "model/hf/lora_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/families/family.h"
#include "model/hf/module_pattern.h"

namespace zeroth::model {
namespace {

using configs::LoraConfig;
using configs::ModuleNames;
using Kind = ModelModule::Kind;

constexpr int64_t kMaxRank = 1'000'000;
constexpr size_t kMinNamesToShorten = 20;  // as in peft

// Returns what peft adapts if target_modules is not set; nothing for a family that it does not
// know.
std::vector<std::string> usual_targets(const std::string& family) {
  const Family* const known = find_family(family);
  const auto targets = known == nullptr ? std::span<const std::string_view>() : known->lora_targets;
  return {targets.begin(), targets.end()};
}

// Returns the first paths, and how many more there are.
std::string describe(const std::vector<std::string>& paths, size_t max_shown = 3) {
  std::string text;
  for (size_t i = 0; i < std::min(paths.size(), max_shown); ++i) {
    text += (i == 0 ? "" : ", ") + shortened(paths[i]);
  }
  if (paths.size() > max_shown) text += fmt::format(" and {} more", paths.size() - max_shown);
  return text;
}

std::string describe(const ModuleNames& names) {
  return names.pattern.empty() ? describe(names.names, 10) : "'" + shortened(names.pattern) + "'";
}

std::vector<std::string> paths_of(const std::vector<ModelModule>& modules,
                                  const std::set<Kind>& kinds) {
  std::vector<std::string> paths;
  for (const ModelModule& module : modules) {
    if (kinds.contains(module.kind)) paths.push_back(module.path);
  }
  return paths;
}

// Returns nullopt for a number that is no rank.
std::optional<int64_t> to_rank(double r) {
  const bool fits = r >= 1 && r <= static_cast<double>(kMaxRank) && r == std::floor(r);
  return fits ? std::optional(static_cast<int64_t>(r)) : std::nullopt;
}

void check_values(const LoraConfig& config, std::vector<std::string>& errors) {
  const auto check_rank = [&](const std::string& key, double r) {
    if (to_rank(r)) return;
    errors.push_back(
        fmt::format("{} is {}, expected a whole number from 1 to {}", key, r, kMaxRank));
  };
  const auto check_alpha = [&](const std::string& key, double alpha) {
    if (!std::isfinite(alpha))
      errors.push_back(fmt::format("{} is {}, expected a finite number", key, alpha));
  };
  check_rank("lora.r", static_cast<double>(config.r));
  check_alpha("lora.lora_alpha", config.alpha);
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    errors.push_back(fmt::format("lora.lora_dropout is {}, expected 0 <= p < 1", config.dropout));
  }
  for (const auto& [expression, r] : config.rank_pattern)
    check_rank("lora.rank_pattern." + shortened(expression), r);
  for (const auto& [expression, alpha] : config.alpha_pattern)
    check_alpha("lora.alpha_pattern." + shortened(expression), alpha);
}

void check_layers(const ModelSpec& spec, const LoraConfig& config,
                  std::vector<std::string>& errors) {
  const bool has_layers = !config.layers_to_transform.empty();
  const bool has_pattern = !config.layers_pattern.empty();
  for (const auto& [is_set, key] : {std::pair(has_layers, "lora.layers_to_transform"),
                                    std::pair(has_pattern, "lora.layers_pattern")}) {
    if (!is_set || config.target_modules.pattern.empty()) continue;
    errors.push_back(
        fmt::format("{} cannot be used with lora.target_modules '{}': name modules in a list", key,
                    shortened(config.target_modules.pattern)));
  }
  if (has_pattern && !has_layers) {
    errors.emplace_back("lora.layers_pattern has no effect without lora.layers_to_transform");
  }
  for (const int64_t layer : config.layers_to_transform) {
    if (layer >= 0 && layer < spec.num_layers) continue;
    errors.push_back(fmt::format("lora.layers_to_transform has {}, but the layers are 0 to {}",
                                 layer, spec.num_layers - 1));
  }
}

// The values of r and alpha, with their patterns.
class RankAndScale {
 public:
  RankAndScale(const LoraConfig& config, std::vector<std::string>& errors)
      : config_(config),
        ranks_("lora.rank_pattern", config.rank_pattern, errors),
        alphas_("lora.alpha_pattern", config.alpha_pattern, errors) {}

  LoraModule of(std::string_view path) const {
    const int64_t r =
        to_rank(ranks_.find(path).value_or(static_cast<double>(config_.r))).value_or(1);
    const double alpha = alphas_.find(path).value_or(config_.alpha);
    const auto divisor = static_cast<double>(r);
    return {r, alpha / (config_.use_rslora ? std::sqrt(divisor) : divisor)};
  }

  // Adds an error for each pattern that matches none of the paths.
  void check_used(const std::vector<std::string>& paths, std::vector<std::string>& errors) const {
    for (const PatternMatcher* matcher : {&ranks_, &alphas_}) matcher->check_used(paths, errors);
  }

 private:
  const LoraConfig& config_;
  PatternMatcher ranks_, alphas_;
};

// A Planner makes one plan, step by step.
class Planner {
 public:
  Planner(const ModelSpec& spec, LoraConfig config, std::vector<std::string>& errors)
      : spec_(spec),
        config_(std::move(config)),
        errors_(errors),
        modules_(list_modules(spec)),
        matcher_(config_, errors),
        values_(config_, errors) {}

  LoraPlan run() {
    select_targets();
    for (const std::string& name : config_.modules_to_save) train_saved(name);
    train_biases();
    plan_.unties_head = spec_.tie_word_embeddings && (plan_.trained.contains("embedding.weight") ||
                                                      plan_.trained.contains("head.weight"));
    return std::move(plan_);
  }

 private:
  template <typename... Args>
  void add_error(fmt::format_string<Args...> text, Args&&... args) {
    errors_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void select_targets() {
    std::vector<std::string> targets, unfit, untargeted;
    bool excludes_any = false;
    for (const ModelModule& module : modules_) {
      const bool excluded = matcher_.is_excluded(module.path);
      excludes_any = excludes_any || excluded;
      if (!matcher_.is_selected(module.path)) continue;
      if (excluded || matcher_.is_saved(module.path)) {
        untargeted.push_back(module.path);
        continue;
      }
      if (module.kind == Kind::kNorm || module.kind == Kind::kOther || module.kind == Kind::kBare) {
        unfit.push_back(module.path);
      } else {
        plan_.modules[module.canonical] = values_.of(module.path);
        targets.push_back(module.path);
      }
    }
    if (!unfit.empty()) {
      add_error(
          "lora.target_modules selects {}, but only products, embeddings and the head have "
          "adapters{}",
          describe(unfit), hint());
    }
    if (config_.exclude_modules.is_set() && !excludes_any) {
      add_error("lora.exclude_modules {} excludes no module{}", describe(config_.exclude_modules),
                hint());
    }
    if (!targets.empty()) {
      values_.check_used(targets, errors_);
    } else if (!untargeted.empty()) {
      add_error(
          "lora.target_modules {} selects only modules of exclude_modules or modules_to_save: {}",
          describe(config_.target_modules), describe(untargeted));
    } else if (unfit.empty() && matcher_.has_targets()) {
      add_error("lora.target_modules {} selects no module{}{}", describe(config_.target_modules),
                config_.layers_to_transform.empty() ? "" : " of lora.layers_to_transform", hint());
    }
  }

  // Returns the end of a message: paths that exist.
  std::string hint() const {
    const std::vector<std::string> products = paths_of(modules_, {Kind::kProduct});
    const size_t in_layer = products.size() / std::max<size_t>(spec_.num_layers, 1);
    return fmt::format(
        "; products of this model are {}; it also has {}", describe(products, in_layer),
        describe(paths_of(modules_, {Kind::kEmbedding, Kind::kPositions, Kind::kHead})));
  }

  // Trains every module whose path ends with the name, and all inside it, as peft does.
  void train_saved(const std::string& name) {
    std::vector<std::string> with_adapter;
    bool found = false;
    for (const ModelModule& module : modules_) {
      if (name.empty() || module.parameters.empty() || !is_inside(module.path, name)) continue;
      found = true;
      if (plan_.modules.contains(module.canonical)) with_adapter.push_back(module.path);
      for (const std::string& parameter : module.parameters)
        if (is_trainable(parameter)) plan_.trained.insert(parameter);
    }
    if (!with_adapter.empty()) {
      add_error(
          "lora.modules_to_save '{}' is the end of a path with adapters: {}. Begin it after a dot, "
          "or remove it.",
          shortened(name), describe(with_adapter));
    }
    if (!found) {
      add_error(
          "lora.modules_to_save '{}' is the end of no path of a module with parameters; such are "
          "{}",
          shortened(name),
          describe(paths_of(modules_, {Kind::kEmbedding, Kind::kPositions, Kind::kHead})));
    }
  }

  // Returns whether the path, or that of a module around it, ends with the name.
  static bool is_inside(std::string_view path, std::string_view name) {
    for (size_t end = 0; end != path.npos;) {
      end = path.find('.', end + 1);
      if (path.substr(0, end).ends_with(name)) return true;
    }
    return false;
  }

  void train_biases() {
    if (config_.bias == LoraConfig::Bias::kNone) return;
    const bool all = config_.bias == LoraConfig::Bias::kAll;
    for (const ModelModule& module : modules_) {
      if (!all && !plan_.modules.contains(module.canonical)) continue;
      for (const std::string& name : module.parameters) {
        if (name.ends_with("bias") && is_trainable(name)) plan_.trained.insert(name);
      }
    }
  }

  const ModelSpec& spec_;
  LoraConfig config_;
  std::vector<std::string>& errors_;
  std::vector<ModelModule> modules_;
  TargetMatcher matcher_;
  RankAndScale values_;
  LoraPlan plan_;
};

}  // namespace

ModuleNames resolved_targets(const ModelSpec& spec, const LoraConfig& config) {
  const std::vector<ModelModule> modules = list_modules(spec);
  ModuleNames targets = config.target_modules;
  if (!targets.is_set()) targets.names = usual_targets(spec.family);
  if (targets.is_all_linear()) targets = {{}, paths_of(modules, {Kind::kProduct})};
  if (!targets.is_set()) {
    throw Error(
        "lora.target_modules is not set, and a {} model has no usual ones: name modules, such as "
        "{}, or write \"all-linear\"",
        spec.family, describe(paths_of(modules, {Kind::kProduct})));
  }
  if (targets.names.size() >= kMinNamesToShorten) {
    std::vector<std::string> paths;
    for (const ModelModule& module : modules) paths.push_back(module.path);
    targets.names = shortest_ends(targets.names, paths);
  }
  return targets;
}

LoraPlan plan_lora(const ModelSpec& spec, const LoraConfig& config) {
  std::vector<std::string> errors;
  check_values(config, errors);
  check_layers(spec, config, errors);
  LoraPlan plan;
  try {
    LoraConfig resolved = config;
    resolved.target_modules = resolved_targets(spec, config);
    plan = Planner(spec, std::move(resolved), errors).run();
    plan.dropout = config.dropout;
    plan.init = config.init;
  } catch (const Error& error) {
    errors.emplace_back(error.what());
  }
  if (errors.empty()) return plan;
  throw Error("section lora does not fit this {} model:\n  {}", spec.family, listed(errors));
}

bool is_lora_target(std::string_view path, const LoraConfig& config) {
  std::vector<std::string> errors;
  const TargetMatcher matcher(config, errors);
  if (!errors.empty()) throw Error("{}", listed(errors));
  return !matcher.is_excluded(path) && !matcher.is_saved(path) && matcher.is_selected(path);
}

LoraModule lora_module(std::string_view path, const LoraConfig& config) {
  std::vector<std::string> errors;
  check_values(config, errors);
  const RankAndScale values(config, errors);
  if (!errors.empty()) throw Error("{}", listed(errors));
  return values.of(path);
}

}  // namespace zeroth::model
