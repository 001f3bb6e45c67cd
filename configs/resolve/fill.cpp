#include <algorithm>

#include "base/error.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

// What has no key in the file.
void fill_from_flags(const FlagValues& flags, Config& config) {
  config.seed = flags.seed.value_or(config.seed);
  config.loss_mean = flags.loss_mean.value_or(config.loss_mean);
  config.on_non_finite = flags.on_non_finite.value_or(config.on_non_finite);
  config.dropout = flags.dropout;
}

}  // namespace

Config fill(Context& context) {
  if (context.facts.world_size < 1) {
    throw Error("ranks: expected >= 1, found {}", context.facts.world_size);
  }
  Config config;
  check_flags(context);
  if (context.complaints.empty()) config.batch = fill_batch(context);
  fill_precision(context, config);
  config.gradient_clipping =
      context.pick("gradient_clipping", context.flags.max_grad_norm, "--max-grad-norm")
          .value_or(config.gradient_clipping);
  fill_optimizer(context, config);
  fill_scheduler(context, config);
  config.dataloader_drop_last =
      context.pick("dataloader_drop_last", context.flags.drop_last, "--drop-last").value_or(false);
  fill_gradients(context, config);
  fill_zero(context, config);
  fill_offload(context, config);
  fill_recompute(context, config);
  fill_report(context, config);
  fill_from_flags(context.flags, config);
  validate(context, config);
  return config;
}

std::vector<std::string> all_complaints(const Context& context) {
  std::vector<std::string> all;
  for (const std::string& complaint : context.keys.complaints) {
    const bool moot = std::any_of(context.moot.begin(), context.moot.end(),
                                  [&](const auto& path) { return complaint.starts_with(path); });
    if (!moot) all.push_back(complaint);
  }
  all.insert(all.end(), context.complaints.begin(), context.complaints.end());
  return all;
}

Origins all_origins(const Context& context) {
  Origins origins;
  for (const Key& key : keys()) {
    if (key.state != KeyState::kHonoured || key.type == KeyType::kSection) continue;
    const std::string path(key.path);
    const auto known = context.origins.find(path);
    const bool automatic = context.keys.is_auto(path);
    if (context.keys.values.count(path) > 0 && !automatic) {
      origins[path] = "file";
    } else if (known != context.origins.end()) {
      origins[path] = fmt::format("{}{}", automatic ? "auto: " : "", known->second);
    } else {
      origins[path] = automatic ? fmt::format("auto: {}", key.automatic) : "default";
    }
  }
  return origins;
}

}  // namespace zeroth::configs
