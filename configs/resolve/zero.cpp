#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

// Hugging Face's formulas for "auto", of the model's hidden size.
struct Formula {
  double factor;
  bool squared;
  const char* text;
};

constexpr Formula kReduceBucket = {1, true, "hidden size squared"};
constexpr Formula kPrefetchBucket = {0.9, true, "0.9 * hidden size squared"};
constexpr Formula kPersistence = {10, false, "10 * hidden size"};

void read_size(Context& context, const std::string& path, const Formula& formula, int64_t& into) {
  if (!context.keys.is_auto(path)) {
    context.read(path, into);
    return;
  }
  const auto hidden = static_cast<double>(context.facts.hidden_size);
  context.origins[path] = formula.text;
  if (hidden > 0) {
    into = static_cast<int64_t>(formula.factor * hidden * (formula.squared ? hidden : 1));
  } else if (context.facts_known) {
    context.complain("{}: \"auto\" needs the model's hidden size: give a number", path);
  }
}

// Hugging Face resolves these at stage 3 only; DeepSpeed takes its default for "auto".
void read_stage3_size(Context& context, const std::string& path, const Formula& formula,
                      const ZeroConfig& zero, int64_t& into) {
  if (zero.stage == 3) return read_size(context, path, formula, into);
  context.read(path, into);
  if (context.keys.is_auto(path)) context.origins[path] = "the default";
}

}  // namespace

void fill_zero(Context& context, Config& config) {
  ZeroConfig& zero = config.zero;
  const auto read = [&](const char* name, auto& into) {
    context.read(fmt::format("zero_optimization.{}", name), into);
  };
  read("stage", zero.stage);
  read("overlap_comm", zero.overlap_comm);
  read("reduce_scatter", zero.reduce_scatter);
  read("ignore_unused_parameters", zero.ignore_unused_parameters);
  read("allgather_bucket_size", zero.allgather_bucket_elements);
  read("sub_group_size", zero.sub_group_size_elements);
  if (zero.sub_group_size_elements == 0) {
    zero.sub_group_size_elements = ZeroConfig().sub_group_size_elements;
  }
  read("stage3_max_live_parameters", zero.max_live_elements);
  read("stage3_gather_16bit_weights_on_model_save", zero.gather_16bit_weights_on_model_save);
  read_size(context, "zero_optimization.reduce_bucket_size", kReduceBucket,
            zero.reduce_bucket_elements);
  read_stage3_size(context, "zero_optimization.stage3_prefetch_bucket_size", kPrefetchBucket, zero,
                   zero.prefetch_bucket_elements);
  read_stage3_size(context, "zero_optimization.stage3_param_persistence_threshold", kPersistence,
                   zero, zero.param_persistence_threshold_elements);
}

void fill_recompute(Context& context, Config& config) {
  const std::string path = "activation_checkpointing.number_checkpoints";
  RecomputeConfig& recompute = config.recompute;
  recompute.number_checkpoints = context.keys.get<int64_t>(path).value_or(0);
  context.read("activation_checkpointing.cpu_checkpointing", recompute.cpu_checkpointing);
  recompute.every_nth_block = context.flags.gradient_checkpointing.value_or(0);
}

}  // namespace zeroth::configs
