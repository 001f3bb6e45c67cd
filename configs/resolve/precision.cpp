#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

const char* flag_of(Precision precision) {
  switch (precision) {
    case Precision::kFp16:
      return "--fp16";
    case Precision::kBf16:
      return "--bf16";
    case Precision::kFp32:
      break;
  }
  return "--fp32";
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

std::optional<Precision> precision_at(const Context& context, const std::string& path) {
  const auto name = context.keys.get<std::string>(path);
  return name ? std::optional(parse_precision(*name)) : std::nullopt;
}

void check_types(Context& context, const Config& config, std::optional<Precision> parameters) {
  const char* working = to_string(config.precision);
  if (parameters && *parameters != config.precision) {
    context.add_error(
        "data_types.param_dtype: {}, but the run computes in {}: leave it out or make "
        "them equal",
        to_string(*parameters), working);
  }
  const Precision accumulation = config.gradients.accumulation;
  if (accumulation != Precision::kFp32 && accumulation != config.precision) {
    context.add_error("data_types.grad_accum_dtype: {} in a run in {}: expected fp32{}",
                      to_string(accumulation), working,
                      config.precision == Precision::kFp32 ? "" : fmt::format(" or {}", working));
  }
}

}  // namespace

const char* to_string(Precision precision) {
  return flag_of(precision) + 2;  // without the dashes
}

Precision parse_precision(const std::string& name) {
  if (name.starts_with("b")) return Precision::kBf16;
  return name.ends_with("16") ? Precision::kFp16 : Precision::kFp32;
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
  LossScaleConfig& scale = config.loss_scale;
  context.read("fp16.loss_scale", scale.static_scale);
  context.read("fp16.initial_scale_power", scale.initial_scale_power);
  context.read("fp16.loss_scale_window", scale.window);
  context.read("fp16.hysteresis", scale.hysteresis);
  context.read("fp16.consecutive_hysteresis", scale.consecutive_hysteresis);
  context.read("fp16.min_loss_scale", scale.min_scale);
  context.read("bf16.check_grad_overflow", config.check_grad_overflow);
}

void fill_gradients(Context& context, Config& config) {
  GradientConfig& gradients = config.gradients;
  context.read("prescale_gradients", gradients.prescale);
  context.read("gradient_predivide_factor", gradients.predivide_factor);
  if (context.keys.get<std::string>("gradient_allreduce_op") == "sum") {
    gradients.reduce = GradientConfig::Reduction::kSum;
  }
  gradients.communication = precision_at(context, "communication_data_type");
  gradients.accumulation =
      precision_at(context, "data_types.grad_accum_dtype").value_or(gradients.accumulation);
  check_types(context, config, precision_at(context, "data_types.param_dtype"));
}

}  // namespace zeroth::configs
