#include <algorithm>

#include "base/nearest.h"
#include "configs/context.h"

namespace zeroth::configs {
namespace {

// Without an optimizer section, and for "auto", the flags and their defaults; DeepSpeed's default
// within a section.
double rate(Context& context) {
  const std::string path = "optimizer.params.lr";
  if (const auto value = context.pick(path, context.flags.lr, "--lr")) return *value;
  const bool flag_default = !context.keys.has("optimizer") || context.keys.is_auto(path);
  return flag_default ? kFlagLr : OptimizerConfig().lr;
}

}  // namespace

std::optional<std::string> known_type(Context& context, const std::string& path, const Names& known,
                                      const Names& not_yet, bool any_case) {
  const std::optional<std::string> type = context.keys.get<std::string>(path);
  if (!type) {
    if (!context.keys.is_bad(path)) {
      context.complain("{}: missing; one of {}", path, fmt::join(known, ", "));
    }
    return std::nullopt;
  }
  const auto same = [&](std::string_view name) {
    return any_case ? edit_distance(*type, name) == 0 : *type == name;
  };
  if (const auto found = std::find_if(known.begin(), known.end(), same); found != known.end()) {
    return std::string(*found);
  }
  context.moot.push_back(path.substr(0, path.find('.')) + ".params.");
  if (std::any_of(not_yet.begin(), not_yet.end(), same)) {
    context.complain("{}: {} is not supported yet; one of {}", path, *type, fmt::join(known, ", "));
  } else {
    const std::string_view near = nearest_name(*type, known);
    context.complain("{}: unknown type \"{}\"; {}", path, *type,
                     near.empty() ? fmt::format("one of {}", fmt::join(known, ", "))
                                  : fmt::format("did you mean {}?", near));
  }
  return std::nullopt;
}

void fill_optimizer(Context& context, Config& config) {
  const FlagValues& flags = context.flags;
  OptimizerConfig& optimizer = config.optimizer;
  if (context.keys.values.count("optimizer") > 0) {
    const auto type = known_type(context, "optimizer.type", {"AdamW", "Adam"},
                                 {"Lion", "Adagrad", "Muon", "Lamb", "OneBitAdam", "ZeroOneAdam",
                                  "OneBitLamb", "MuAdam", "MuAdamW", "MuSGD", "SGD"},
                                 true);
    const bool decoupled = context.keys.get<bool>("optimizer.params.adam_w_mode").value_or(true);
    optimizer.kind =
        type == "Adam" && !decoupled ? OptimizerConfig::Kind::kAdam : OptimizerConfig::Kind::kAdamW;
  }
  optimizer.lr = rate(context);
  optimizer.betas =
      context.pick("optimizer.params.betas", flags.betas, "--betas").value_or(optimizer.betas);
  optimizer.eps = context.pick("optimizer.params.eps", flags.eps, "--eps").value_or(optimizer.eps);
  optimizer.weight_decay =
      context.pick("optimizer.params.weight_decay", flags.weight_decay, "--weight-decay")
          .value_or(optimizer.weight_decay);
}

}  // namespace zeroth::configs
