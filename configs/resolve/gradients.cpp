#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

// "fp16" and "float16" alike; the key table admits nothing else.
Precision precision_named(const std::string& name) {
  if (name.starts_with("b")) return Precision::kBf16;
  return name.ends_with("16") ? Precision::kFp16 : Precision::kFp32;
}

std::optional<Precision> precision_at(const Context& context, const std::string& path) {
  const auto name = context.keys.get<std::string>(path);
  return name ? std::optional(precision_named(*name)) : std::nullopt;
}

void check_types(Context& context, const Config& config, std::optional<Precision> parameters) {
  const char* working = name_of(config.precision);
  if (parameters && *parameters != config.precision) {
    context.complain(
        "data_types.param_dtype: {}, but the run computes in {}: leave it out or make "
        "them equal",
        name_of(*parameters), working);
  }
  const Precision accumulation = config.gradients.accumulation;
  if (accumulation != Precision::kFp32 && accumulation != config.precision) {
    context.complain("data_types.grad_accum_dtype: {} beside a run in {}: expected fp32{}",
                     name_of(accumulation), working,
                     config.precision == Precision::kFp32 ? "" : fmt::format(" or {}", working));
  }
}

}  // namespace

void fill_gradients(Context& context, Config& config) {
  GradientConfig& gradients = config.gradients;
  context.read("prescale_gradients", gradients.prescale);
  context.read("gradient_predivide_factor", gradients.predivide_factor);
  if (context.keys.get<std::string>("gradient_allreduce_op") == "sum") {
    gradients.reduce = GradientConfig::Reduce::kSum;
  }
  gradients.communication = precision_at(context, "communication_data_type");
  gradients.accumulation =
      precision_at(context, "data_types.grad_accum_dtype").value_or(gradients.accumulation);
  check_types(context, config, precision_at(context, "data_types.param_dtype"));
}

}  // namespace zeroth::configs
