#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

void check_flag(Context& context, const char* flag, std::optional<double> value,
                std::string_view range) {
  if (value && !in_range(*value, range)) {
    context.complain("{}: expected {}, found {}", flag, range, *value);
  }
}

void check_flag_of_key(Context& context, const char* flag, std::optional<double> value,
                       std::string_view path) {
  const Key* key = find_key(path);
  ZEROTH_CHECK(key != nullptr, "no key {}", path);
  check_flag(context, flag, value, key->accepts);
}

void check_precision(Context& context) {
  const CheckedKeys& keys = context.keys;
  const bool fp16 = keys.get<bool>("fp16.enabled").value_or(false);
  if (fp16 && keys.get<bool>("bf16.enabled").value_or(false)) {
    context.complain("fp16.enabled and bf16.enabled are both true: switch one off");
  }
}

void check_dynamic_scale(Context& context, const Config& config) {
  if (config.precision != Precision::kFp16 || config.loss_scale.static_scale != 0) return;
  for (const char* path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
    const std::optional<int64_t> value = context.keys.get<int64_t>(path);
    if (value && *value <= 0) {
      context.complain("{}: expected an integer > 0 for a dynamic loss scale, found {}", path,
                       *value);
    }
  }
}

void check_optimizer(Context& context, const Config& config) {
  const std::string path = "optimizer.params.adam_w_mode";
  const auto type = context.keys.get<std::string>("optimizer.type");
  const bool decoupled = config.optimizer.kind == OptimizerConfig::Kind::kAdamW;
  if (type && decoupled && context.keys.get<bool>(path) == false) {
    context.complain("{}: false contradicts optimizer.type {}: write type Adam", path, *type);
  }
}

void check_schedule(Context& context, const Config& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  if (scheduler.total_num_steps > 0 && scheduler.total_num_steps < scheduler.warmup_num_steps) {
    context.warn("scheduler.params.warmup_num_steps",
                 "the schedule has {} steps, fewer than its warm-up of {}",
                 scheduler.total_num_steps, scheduler.warmup_num_steps);
  }
}

void check_recompute(Context& context, const Config& config) {
  if (config.recompute.every_nth_block > 0 && config.recompute.number_checkpoints > 0) {
    context.complain(
        "activation_checkpointing.number_checkpoints: {} in the file beside "
        "--gradient-checkpointing={}: give one of the two",
        config.recompute.number_checkpoints, config.recompute.every_nth_block);
  }
  const bool recomputes =
      config.recompute.every_nth_block > 0 || config.recompute.number_checkpoints > 0;
  if (config.recompute.cpu_checkpointing && !recomputes && context.facts_known) {
    context.warn(
        "activation_checkpointing.cpu_checkpointing",
        "activation_checkpointing.cpu_checkpointing true has no effect: nothing is recomputed "
        "without number_checkpoints or --gradient-checkpointing");
  }
}

}  // namespace

void check_flags(Context& context) {
  const FlagValues& flags = context.flags;
  check_flag_of_key(context, "--micro-batch", flags.micro_batch, "train_micro_batch_size_per_gpu");
  check_flag_of_key(context, "--accumulation", flags.accumulation, "gradient_accumulation_steps");
  check_flag_of_key(context, "--global-batch", flags.global_batch, "train_batch_size");
  check_flag_of_key(context, "--lr", flags.lr, "optimizer.params.lr");
  check_flag_of_key(context, "--weight-decay", flags.weight_decay, "optimizer.params.weight_decay");
  check_flag_of_key(context, "--eps", flags.eps, "optimizer.params.eps");
  check_flag_of_key(context, "--max-grad-norm", flags.max_grad_norm, "gradient_clipping");
  if (flags.betas) {
    for (const double beta : *flags.betas) {
      check_flag_of_key(context, "--betas", beta, "optimizer.params.betas");
    }
  }
  check_flag(context, "--warmup-steps", flags.warmup_steps, ">= 0");
  check_flag(context, "--warmup-ratio", flags.warmup_ratio, "0..1");
  check_flag(context, "--dropout", flags.dropout, "[0, 1)");
  check_flag(context, "--gradient-checkpointing", flags.gradient_checkpointing, ">= 1");
}

void validate(Context& context, const Config& config) {
  check_precision(context);
  check_dynamic_scale(context, config);
  check_optimizer(context, config);
  check_schedule(context, config);
  check_recompute(context, config);
  check_offload(context, config);
}

}  // namespace zeroth::configs
