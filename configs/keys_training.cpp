#include "configs/key_rows.h"

namespace zeroth::configs {
namespace {

constexpr KeyType kBool = KeyType::kBool;
constexpr KeyType kInteger = KeyType::kInteger;
constexpr KeyType kNumber = KeyType::kNumber;
constexpr KeyType kString = KeyType::kString;
constexpr KeyType kPair = KeyType::kPair;
constexpr KeyState kHonoured = KeyState::kHonoured;
constexpr std::string_view kDefault = "the default";

std::vector<Key> batch_rows() {
  return {
      {"train_batch_size", kInteger, kHonoured, "null", "1..1000000000000",
       "--global-batch, else the product",
       "samples per optimizer step over all ranks; always micro-batch * accumulation * ranks"},
      {"train_micro_batch_size_per_gpu", kInteger, kHonoured, "null", "1..1000000",
       "--micro-batch, else from the other two, else 8",
       "samples that one rank runs at once; activation memory grows with it"},
      {"gradient_accumulation_steps", kInteger, kHonoured, "null", "1..1000000",
       "--accumulation, else from the other two, else 1",
       "micro-batches per optimizer step; more cost time but no activation memory"},
      {"gradient_clipping", kNumber, kHonoured, "1.0", ">= 0", "--max-grad-norm",
       "global L2 norm to which gradients are clipped; 0 switches clipping off"},
      {"steps_per_print", kInteger, kHonoured, "null", ">= 0", "",
       "a detailed line every this many steps; null or 0: never"},
      {"wall_clock_breakdown", kBool, kHonoured, "false", "", "",
       "each printed step is split into forward, backward, reduce and update; costs "
       "synchronisation"},
  };
}

std::vector<Key> precision_rows() {
  return {
      section("fp16", "half precision with loss scaling and fp32 masters"),
      {"fp16.enabled", kBool, kHonoured, "false", "", "--fp16", "computes in fp16"},
      no_effect("fp16.auto_cast", kBool, "false", "the inputs of the model are token ids"),
      {"fp16.loss_scale", kNumber, kHonoured, "0", ">= 0", kDefault,
       "fixed loss scale; 0 means dynamic"},
      {"fp16.initial_scale_power", kInteger, kHonoured, "16", "0..62", kDefault,
       "the dynamic scale starts at 2 to this power"},
      {"fp16.loss_scale_window", kInteger, kHonoured, "1000", "", kDefault,
       "clean steps after which the dynamic scale doubles; above 0 while it is in use"},
      {"fp16.hysteresis", kInteger, kHonoured, "2", ">= 1", kDefault,
       "overflows that are tolerated before the dynamic scale halves"},
      {"fp16.consecutive_hysteresis", kBool, kHonoured, "false", "", kDefault,
       "every clean step restores the hysteresis, not only a doubling"},
      {"fp16.min_loss_scale", kInteger, kHonoured, "1", "", kDefault,
       "floor of the dynamic scale; above 0 while it is in use"},
      refused("fp16.fp16_master_weights_and_grads", "false",
              "not supported yet: masters are always fp32"),
      section("bf16", "bfloat16 with fp32 masters (also spelled bfloat16)"),
      {"bf16.enabled", kBool, kHonoured, "false", "", "--bf16", "computes in bfloat16"},
      no_effect("bf16.immediate_grad_update", kBool, "false",
                "gradients are accumulated in fp32 as they are produced"),
      refused("bf16.check_grad_overflow", "true",
              "a step with non-finite gradients is always skipped and counted"),
      refused("bf16.bf16_master_weights_and_grads", "false",
              "not supported yet: masters are always fp32"),
      refused("bf16.bf16_optimizer_states", "false", "not supported yet: moments are always fp32"),
  };
}

std::vector<Key> optimizer_rows() {
  return {
      section("optimizer", "without it: AdamW with the values of the flags"),
      {"optimizer.type", kString, kHonoured, "null", "", "",
       "Adam or AdamW in any case; both are AdamW unless adam_w_mode is false"},
      section("optimizer.params", "what is absent here has DeepSpeed's default"),
      {"optimizer.params.lr", kNumber, kHonoured, "0.001", ">= 0", "--lr", "learning rate"},
      {"optimizer.params.betas", kPair, kHonoured, "[0.9, 0.999]", "[0, 1)", "--betas",
       "decay rates of the two moments"},
      {"optimizer.params.eps", kNumber, kHonoured, "1e-08", ">= 0", "--eps",
       "added to the root of the second moment"},
      {"optimizer.params.weight_decay", kNumber, kHonoured, "0.0", ">= 0", "--weight-decay",
       "weight decay: decoupled in AdamW, added to the gradient in Adam"},
      {"optimizer.params.adam_w_mode", kBool, kHonoured, "true", "", "",
       "false with type Adam: weight decay is added to the gradient"},
      refused("optimizer.params.bias_correction", "true",
              "not supported yet: moments are always corrected"),
      refused("optimizer.params.amsgrad", "false", "not supported, by DeepSpeed neither"),
      refused("optimizer.params.fp32_optimizer_states", "true",
              "not supported yet: moments are always fp32"),
      refused("optimizer.params.max_grad_norm", "null",
              "gradients are clipped by the top-level key gradient_clipping"),
      no_effect("optimizer.params.torch_adam", kBool, "false", "there is one implementation"),
      no_effect("optimizer.params.set_grad_none", kBool, "true",
                "gradients live in buffers of their own"),
      no_effect("optimizer.legacy_fusion", kBool, "false", "there is one implementation"),
  };
}

std::vector<Key> scheduler_rows() {
  return {
      section("scheduler", "without it: --warmup-steps linear steps from 0, then a constant rate"),
      {"scheduler.type", kString, kHonoured, "null", "", "",
       "WarmupLR, WarmupDecayLR or WarmupCosineLR, spelled exactly so"},
      section("scheduler.params", "required beside a type"),
      {"scheduler.params.warmup_min_lr", kNumber, kHonoured, "0.0", ">= 0", "0",
       "WarmupLR, WarmupDecayLR: rate of the first update"},
      {"scheduler.params.warmup_max_lr", kNumber, kHonoured, "null", ">= 0", "the optimizer's lr",
       "WarmupLR, WarmupDecayLR: rate after the warm-up; absent: the optimizer's lr in WarmupLR, "
       "--lr or 0.001 in WarmupDecayLR"},
      {"scheduler.params.warmup_num_steps", kInteger, kHonoured, "1000", ">= 1",
       "--warmup-steps, else 1", "updates of the warm-up (DeepSpeed counts 1 as 2)"},
      {"scheduler.params.warmup_type", kString, kHonoured, "\"log\"", "\"log\" | \"linear\"", "",
       "shape of the warm-up: log or linear"},
      {"scheduler.params.total_num_steps", kInteger, kHonoured, "null", ">= 1",
       "the steps of the run",
       "WarmupDecayLR, WarmupCosineLR: required; the update at which the rate reaches its end"},
      {"scheduler.params.warmup_min_ratio", kNumber, kHonoured, "0.0", ">= 0", "",
       "WarmupCosineLR: first rate as a ratio of the optimizer's lr"},
      {"scheduler.params.cos_min_ratio", kNumber, kHonoured, "0.0001", ">= 0", "",
       "WarmupCosineLR: last rate as a ratio of the optimizer's lr"},
      refused("scheduler.params.last_batch_iteration", "-1", "the schedule starts with the run"),
  };
}

std::vector<Key> recompute_rows() {
  constexpr std::string_view kRecompute = "activation_checkpointing";
  return {
      section(kRecompute, "recompute: blocks run forward again in backward, to save memory"),
      {"activation_checkpointing.number_checkpoints", kInteger, kHonoured, "null", ">= 0", "",
       "keeps this many evenly spaced block inputs and recomputes everything between; null or 0: "
       "off"},
      refused("activation_checkpointing.partition_activations", "false",
              "not supported yet: kept inputs are not split over ranks"),
      refused("activation_checkpointing.cpu_checkpointing", "false",
              "not supported yet: kept inputs stay on their device"),
      no_effect("activation_checkpointing.contiguous_memory_optimization", kBool, "false",
                "kept inputs are single tensors"),
      no_effect("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false",
                "recompute needs no synchronisation"),
      no_effect("activation_checkpointing.profile", kBool, "false",
                "wall_clock_breakdown times the phases"),
  };
}

}  // namespace

std::vector<Key> training_rows() {
  std::vector<Key> rows;
  for (const auto& part :
       {batch_rows(), precision_rows(), optimizer_rows(), scheduler_rows(), recompute_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace zeroth::configs
