#include "configs/resolve/context.h"
#include "configs/schema/enum_names.h"

namespace zeroth::configs {
namespace {

void check_flag(Context& context, std::string_view flag, std::optional<double> value,
                std::string_view range) {
  if (value && !in_range(*value, range)) {
    context.add_error("{}: expected {}, found {}", flag, range, *value);
  }
}

void check_recompute(Context& context, const Config& config) {
  constexpr char kNumber[] = "activation_checkpointing.number_checkpoints";
  constexpr char kCpu[] = "activation_checkpointing.cpu_checkpointing";
  const int64_t every = config.recompute.every_nth_block;
  if (const auto number = context.keys.get<int64_t>(kNumber); every > 0 && number > 0) {
    context.add_error("{}: {} in the file, but --gradient-checkpointing={}: give only one of them",
                      kNumber, *number, every);
  }
  if (context.keys.get<bool>(kCpu) == true && !config.recompute.is_on() && context.facts_known) {
    warn(context.notes, kCpu,
         "{} true has no effect: nothing is recomputed without number_checkpoints or "
         "--gradient-checkpointing",
         kCpu);
  }
}

}  // namespace

void check_flags(Context& context) {
  const FlagValues& flags = context.flags;
  // Checks the flag of a key, which has the key's range.
  const auto check_flag_of = [&](std::string_view path, std::optional<double> value) {
    check_flag(context, key_at(path).flag, value, key_at(path).accepts);
  };
  check_flag_of("train_micro_batch_size_per_gpu", flags.micro_batch);
  check_flag_of("gradient_accumulation_steps", flags.accumulation);
  check_flag_of("train_batch_size", flags.global_batch);
  check_flag_of("tensor_parallel.autotp_size", flags.tensor_parallel);
  check_flag_of("pipeline.stages", flags.pipeline_parallel);
  check_flag_of("pipeline.virtual_stages", flags.virtual_stages);
  check_flag_of("optimizer.params.lr", flags.lr);
  check_flag_of("optimizer.params.weight_decay", flags.weight_decay);
  check_flag_of("optimizer.params.eps", flags.eps);
  check_flag_of("gradient_clipping", flags.max_grad_norm);
  check_flag_of("lora.r", flags.lora_r);
  check_flag_of("lora.lora_alpha", flags.lora_alpha);
  check_flag_of("lora.lora_dropout", flags.lora_dropout);
  if (flags.betas) {
    for (const double beta : *flags.betas) check_flag_of("optimizer.params.betas", beta);
  }
  check_flag(context, "--warmup-steps", flags.warmup_steps, ">= 0");
  check_flag(context, "--warmup-ratio", flags.warmup_ratio, "0..1");
  check_flag(context, "--dropout", flags.dropout, "[0, 1)");
  check_flag(context, "--gradient-checkpointing", flags.gradient_checkpointing, ">= 1");
}

void validate(Context& context, const Config& config) {
  check_precision(context, config);
  check_optimizer(context, config);
  check_schedule(context, config);
  check_recompute(context, config);
  check_pipeline(context, config);
  check_offload(context, config);
  check_tensor_parallel(context, config);
  check_lora(context, config);
}

}  // namespace zeroth::configs
