#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

constexpr KeyType kBool = KeyType::kBool;
constexpr KeyType kInteger = KeyType::kInteger;
constexpr KeyType kNumber = KeyType::kNumber;
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
      honoured("dataloader_drop_last", kBool, "false", "",
               "samples at the end of an epoch that fill no whole global batch are left out"),
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
       "floor of the dynamic scale; above 0 while it is in use; an overflow there ends the run"},
      refused("fp16.fp16_master_weights_and_grads", "false",
              "not supported yet: masters of an fp16 run are fp32"),
      section("bf16", "bfloat16 with fp32 masters (also spelled bfloat16)"),
      {"bf16.enabled", kBool, kHonoured, "false", "", "--bf16", "computes in bfloat16"},
      no_effect("bf16.immediate_grad_update", kBool, "false",
                "gradients are accumulated in fp32 as they are produced"),
      honoured(
          "bf16.check_grad_overflow", kBool, "true", "",
          "a step with non-finite gradients is skipped; false: it is applied, and ends the run"),
      honoured("bf16.bf16_master_weights_and_grads", kBool, "false", "",
               "with offload_optimizer, from stage 1: masters rest in bf16, rounded "
               "stochastically; gradients accumulate as data_types.grad_accum_dtype says"),
      honoured("bf16.bf16_optimizer_states", kBool, "false", "",
               "with bf16_master_weights_and_grads: moments rest in bf16, rounded stochastically"),
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
      {"activation_checkpointing.cpu_checkpointing", kBool, kHonoured, "false", "", "",
       "kept inputs wait for their backward in host memory; a run on the CPU has them there "
       "anyway"},
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
  for (const auto& part : {batch_rows(), precision_rows(), recompute_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace zeroth::configs
