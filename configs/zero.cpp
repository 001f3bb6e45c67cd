#include "configs/context.h"

namespace zeroth::configs {
namespace {

// The formulas of Hugging Face's integration for "auto".
int64_t from_hidden_size(double factor, double hidden_size, bool squared) {
  return static_cast<int64_t>(factor * hidden_size * (squared ? hidden_size : 1));
}

void read_size(Context& context, const std::string& path, int64_t automatic, int64_t& into) {
  if (!context.keys.is_auto(path)) {
    into = context.keys.get<int64_t>(path).value_or(into);
  } else if (automatic > 0) {
    into = automatic;
  } else if (context.facts_known) {
    context.complain("{}: \"auto\" needs the model's hidden size: give a number", path);
  }
}

}  // namespace

void fill_zero(Context& context, Config& config) {
  const auto hidden = static_cast<double>(context.facts.hidden_size);
  ZeroConfig& zero = config.zero;
  context.read("zero_optimization.stage", zero.stage);
  context.read("zero_optimization.overlap_comm", zero.overlap_comm);
  context.read("zero_optimization.reduce_scatter", zero.reduce_scatter);
  context.read("zero_optimization.ignore_unused_parameters", zero.ignore_unused_parameters);
  context.read("zero_optimization.stage3_gather_16bit_weights_on_model_save",
               zero.gather_16bit_weights_on_model_save);
  read_size(context, "zero_optimization.reduce_bucket_size", from_hidden_size(1, hidden, true),
            zero.reduce_bucket_elements);
  // Hugging Face resolves these two at stage 3 only; DeepSpeed takes its default for "auto".
  const bool stage3 = zero.stage == 3;
  read_size(context, "zero_optimization.stage3_prefetch_bucket_size",
            stage3 ? from_hidden_size(0.9, hidden, true) : zero.prefetch_bucket_elements,
            zero.prefetch_bucket_elements);
  read_size(
      context, "zero_optimization.stage3_param_persistence_threshold",
      stage3 ? from_hidden_size(10, hidden, false) : zero.param_persistence_threshold_elements,
      zero.param_persistence_threshold_elements);
  read_size(context, "zero_optimization.allgather_bucket_size", zero.allgather_bucket_elements,
            zero.allgather_bucket_elements);
  read_size(context, "zero_optimization.sub_group_size", zero.sub_group_size_elements,
            zero.sub_group_size_elements);
  read_size(context, "zero_optimization.stage3_max_live_parameters", zero.max_live_elements,
            zero.max_live_elements);
}

void fill_recompute(Context& context, Config& config) {
  const std::string path = "activation_checkpointing.number_checkpoints";
  RecomputeConfig& recompute = config.recompute;
  recompute.number_checkpoints = context.keys.get<int64_t>(path).value_or(0);
  recompute.every_nth_block = context.flags.gradient_checkpointing.value_or(0);
}

}  // namespace zeroth::configs
