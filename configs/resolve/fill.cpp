#include <algorithm>

#include "base/error.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr double kClippingOfFile = 1.0;  // DeepSpeed's default since June 2026; none before
constexpr double kClippingOfFlag = 1.0;  // of --max-grad-norm; same as Trainer's

// Returns the optimizer's own norm, which DeepSpeed refuses there. Checks it against
// gradient_clipping and --max-grad-norm, which have the same meaning.
std::optional<double> optimizer_clipping(Context& context) {
  constexpr char kPath[] = "optimizer.params.max_grad_norm";
  const auto norm = context.keys.get<double>(kPath);
  if (!norm) return std::nullopt;
  const auto top = context.keys.get<double>("gradient_clipping");
  if (top && *top != *norm) {
    context.add_error("{}: {} in the file, but gradient_clipping {}; keep only gradient_clipping",
                      kPath, context.shown(*norm), context.shown(*top));
  } else if (top) {
    warn(context.notes, kPath,
         "{} {} repeats gradient_clipping, and DeepSpeed refuses it there: leave it out", kPath,
         context.shown(*norm));
  } else {
    warn(context.notes, kPath,
         "{0} {1} is used as gradient_clipping, but DeepSpeed refuses it there: write "
         "\"gradient_clipping\": {1} at the top level of the file",
         kPath, context.shown(*norm));
    context.resolve_value(kPath, context.flags.max_grad_norm);
    context.origins["gradient_clipping"] = kPath;
  }
  return norm;
}

// Returns the global L2 norm for clipping. A value that the file omits is DeepSpeed's default, also
// for Trainer, which replaces only "auto" by its own value.
double resolve_clipping(Context& context) {
  constexpr char kPath[] = "gradient_clipping";
  const std::string_view flag_name = find_key(kPath)->flag;
  const auto& flag = context.flags.max_grad_norm;
  const auto of_optimizer = optimizer_clipping(context);
  if (of_optimizer && !context.keys.get<double>(kPath)) return *of_optimizer;
  const bool left_out = context.keys.from_file && !context.keys.has(kPath);
  if (left_out && (!flag || context.flags.for_trainer)) {
    context.origins[kPath] = "DeepSpeed's default";
    if (flag && *flag != kClippingOfFile) {
      warn(context.notes, flag_name,
           "{} {} has no effect with a file without {}, as in Hugging Face's Trainer: gradients "
           "are clipped at {}, DeepSpeed's default; write \"{}\": \"auto\" into the file",
           flag_name, *flag, kPath, kClippingOfFile, kPath);
    }
    return kClippingOfFile;
  }
  const double norm = context.resolve_value(kPath, flag).value_or(kClippingOfFlag);
  if (!flag && !context.keys.has(kPath) && context.flags.for_trainer) {
    context.origins[kPath] = "Trainer's default";
  }
  return norm;
}

// Reports names that DeepSpeed ignores.
void report_unknown_keys(Context& context) {
  const CheckedKeys& keys = context.keys;
  const size_t more = keys.num_unknown - keys.unknown.size();
  for (const Diagnostic& unknown : keys.unknown) {
    if (context.flags.strict) {
      context.add_error("{}: {}", unknown.key, unknown.text);
    } else {
      warn(context.notes, unknown.key, "{}: ignored, as by DeepSpeed: {} (--strict: an error)",
           unknown.key, unknown.text);
    }
  }
  if (more == 0) return;
  if (context.flags.strict) {
    context.errors.resize(context.errors.size() + more, "another unknown key");
  } else {
    warn(context.notes, "", "{} more unknown keys are ignored, as by DeepSpeed", more);
  }
}

}  // namespace

Config fill(Context& context) {
  if (context.facts.world_size < 1) {
    throw Error("ranks: expected >= 1, found {}", context.facts.world_size);
  }
  Config config;
  for (const ConfigKey& key : keys()) {  // those of a schedule are read with its type
    if (!key.path.starts_with("scheduler.params.")) context.read(key, config);
  }
  check_flags(context);
  const bool flags_are_fine = context.errors.empty();
  fill_mesh(context, config);
  ignore_disabled_elasticity(context);
  if (flags_are_fine) {
    config.batch = is_elastic(context.keys) ? fill_elastic_batch(context, config.sharing_ranks())
                                            : fill_batch(context);
  }
  report_unknown_keys(context);
  fill_precision(context, config);
  config.gradient_clipping = resolve_clipping(context);
  fill_optimizer(context, config);
  fill_scheduler(context, config);
  config.dataloader_drop_last =
      context.resolve_value("dataloader_drop_last", context.flags.drop_last).value_or(false);
  check_dtypes(context, config);
  fill_zero(context, config);
  fill_lora(context, config);
  fill_quantization(context, config);
  check_report(context, config);
  // The values without a key in the file.
  const FlagValues& flags = context.flags;
  config.seed = flags.seed.value_or(config.seed);
  config.loss_mean = flags.loss_mean.value_or(config.loss_mean);
  config.on_non_finite = flags.on_non_finite.value_or(config.on_non_finite);
  config.dropout = flags.dropout;
  config.recompute.every_nth_block = flags.gradient_checkpointing.value_or(0);
  validate(context, config);
  return config;
}

std::vector<std::string> all_errors(const Context& context) {
  std::vector<std::string> all;
  for (const std::string& message : context.keys.errors) {
    const bool suppressed =
        std::any_of(context.suppressed.begin(), context.suppressed.end(),
                    [&](const auto& path) { return message.starts_with(path); });
    if (!suppressed) all.push_back(message);
  }
  all.insert(all.end(), context.errors.begin(), context.errors.end());
  return all;
}

Origins all_origins(const Context& context) {
  Origins origins;
  for (const ConfigKey& key : keys()) {
    if (key.state != KeyState::kHonored || key.field.type == KeyType::kSection) continue;
    const std::string path(key.path);
    const auto known = context.origins.find(path);
    const bool automatic = context.keys.is_auto(path);
    const bool of_file = context.keys.values.count(path) > 0 && !automatic;
    if (of_file && known == context.origins.end()) {
      origins[path] = "file";
    } else if (known != context.origins.end()) {
      origins[path] = fmt::format("{}{}", automatic ? "auto: " : "", known->second);
    } else {
      origins[path] = automatic ? fmt::format("auto: {}", key.auto_value) : "default";
    }
  }
  return origins;
}

}  // namespace zeroth::configs
