#include "base/error.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

void check_flag(Context& context, std::string_view flag, std::optional<double> value,
                std::string_view range) {
  if (value && !in_range(*value, range)) {
    context.add_error("{}: expected {}, found {}", flag, range, *value);
  }
}

// Checks the flag of a key, which has the key's range.
void check_flag_of(Context& context, std::string_view path, std::optional<double> value) {
  const ConfigKey* key = find_key(path);
  ZEROTH_CHECK(key != nullptr, "no key {}", path);
  check_flag(context, key->flag, value, key->accepts);
}

void check_recompute(Context& context, const Config& config) {
  if (config.recompute.every_nth_block > 0 && config.recompute.number_checkpoints > 0) {
    context.add_error(
        "activation_checkpointing.number_checkpoints: {} in the file, but "
        "--gradient-checkpointing={}: give only one of them",
        config.recompute.number_checkpoints, config.recompute.every_nth_block);
  }
  const bool recomputes =
      config.recompute.every_nth_block > 0 || config.recompute.number_checkpoints > 0;
  if (config.recompute.cpu_checkpointing && !recomputes && context.facts_known) {
    warn(context.notes, "activation_checkpointing.cpu_checkpointing",
         "activation_checkpointing.cpu_checkpointing true has no effect: nothing is recomputed "
         "without number_checkpoints or --gradient-checkpointing");
  }
}

}  // namespace

void check_flags(Context& context) {
  const FlagValues& flags = context.flags;
  check_flag_of(context, "train_micro_batch_size_per_gpu", flags.micro_batch);
  check_flag_of(context, "gradient_accumulation_steps", flags.accumulation);
  check_flag_of(context, "train_batch_size", flags.global_batch);
  check_flag_of(context, "tensor_parallel.autotp_size", flags.tensor_parallel);
  check_flag_of(context, "optimizer.params.lr", flags.lr);
  check_flag_of(context, "optimizer.params.weight_decay", flags.weight_decay);
  check_flag_of(context, "optimizer.params.eps", flags.eps);
  check_flag_of(context, "gradient_clipping", flags.max_grad_norm);
  if (flags.betas) {
    for (const double beta : *flags.betas) check_flag_of(context, "optimizer.params.betas", beta);
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
  check_offload(context, config);
  check_tensor_parallel(context, config);
}

}  // namespace zeroth::configs
