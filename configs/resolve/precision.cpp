#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

std::string flag_of(Precision precision) {
  return fmt::format("--{}", to_string(precision));
}

// Adds an error if a switch in the file contradicts the flag.
void compare(Context& context, const char* path, Precision precision) {
  const std::optional<bool> enabled = context.keys.get<bool>(path);
  const Precision flag = *context.flags.precision;
  if (enabled && *enabled != (flag == precision)) {
    context.add_error("{}: {} in the file, but {}; make them equal or write \"auto\" in the file",
                      path, *enabled, flag_of(flag));
  }
}

}  // namespace

void check_dtypes(Context& context, const Config& config) {
  constexpr char kParameters[] = "data_types.param_dtype";
  const std::string_view working = to_string(config.precision);
  if (const auto name = context.keys.get<std::string>(kParameters)) {
    const auto parameters = parse_enum<Precision>(*name);
    if (parameters != config.precision) {
      context.add_error("{}: {}, but the run computes in {}: leave it out or make them equal",
                        kParameters, to_string(*parameters), working);
    }
  }
  const Precision accumulation = config.gradients.accumulation;
  if (accumulation != Precision::kFp32 && accumulation != config.precision) {
    context.add_error("data_types.grad_accum_dtype: {} in a run in {}: expected fp32{}",
                      to_string(accumulation), working,
                      config.precision == Precision::kFp32 ? "" : fmt::format(" or {}", working));
  }
}

void fill_precision(Context& context, Config& config) {
  const CheckedKeys& keys = context.keys;
  for (const char* path : {"fp16.enabled", "bf16.enabled"}) {
    if (keys.is_auto(path)) context.origins[path] = "no flag given";
  }
  if (context.flags.precision) {
    compare(context, "fp16.enabled", Precision::kFp16);
    compare(context, "bf16.enabled", Precision::kBf16);
    config.precision = *context.flags.precision;
    context.origins["fp16.enabled"] = context.origins["bf16.enabled"] = flag_of(config.precision);
  } else if (keys.get<bool>("fp16.enabled").value_or(false)) {
    config.precision = Precision::kFp16;
  } else if (keys.get<bool>("bf16.enabled").value_or(false)) {
    config.precision = Precision::kBf16;
  } else if (keys.has("fp16") || keys.has("bf16")) {
    note(context.notes, "bf16.enabled", "neither fp16 nor bf16 is enabled: fp32");
  } else {
    note(context.notes, "bf16.enabled", "no precision section: fp32");
  }
}

void check_precision(Context& context, const Config& config) {
  const CheckedKeys& keys = context.keys;
  const bool fp16 = keys.get<bool>("fp16.enabled").value_or(false);
  if (fp16 && keys.get<bool>("bf16.enabled").value_or(false)) {
    context.add_error("fp16.enabled and bf16.enabled are both true: switch one off");
  }
  if (!config.scales_loss() || !config.loss_scale.is_dynamic()) return;
  for (const char* path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
    const std::optional<int64_t> value = keys.get<int64_t>(path);
    if (value && *value <= 0) {
      context.add_error("{}: expected an integer > 0 for a dynamic loss scale, found {}", path,
                        *value);
    }
  }
}

}  // namespace zeroth::configs
