#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

std::vector<ConfigKey> batch_rows() {
  return {
      {"train_batch_size", kInteger, kHonored, "null", "1..1000000000000",
       "--global-batch, else the product",
       "samples per optimizer step over all ranks; always micro-batch * accumulation * ranks, "
       "where a tensor-parallel group counts as one rank"},
      {"train_micro_batch_size_per_gpu", kInteger, kHonored, "null", "1..1000000",
       "--micro-batch, else from the other two, else 8",
       "samples that one rank runs at once; activation memory grows with it"},
      {"gradient_accumulation_steps", kInteger, kHonored, "null", "1..1000000",
       "--accumulation, else from the other two, else 1",
       "micro-batches per optimizer step; more cost time but no activation memory"},
      {"gradient_clipping", kNumber, kHonored, "1.0", ">= 0", "--max-grad-norm",
       "global L2 norm to which gradients are clipped; 0 switches clipping off"},
      honored("dataloader_drop_last", kBool, "false", "",
              "drops samples at the end of an epoch that do not fill a global batch"),
  };
}

std::vector<ConfigKey> precision_rows() {
  return {
      section("fp16", "half precision with loss scaling and fp32 masters"),
      {"fp16.enabled", kBool, kHonored, "false", "", "--fp16", "computes in fp16"},
      no_effect("fp16.auto_cast", kBool, "false", "the inputs of the model are token ids"),
      {"fp16.loss_scale", kNumber, kHonored, "0", ">= 0", kDefault,
       "fixed loss scale; 0 means dynamic"},
      {"fp16.initial_scale_power", kInteger, kHonored, "16", "0..62", kDefault,
       "the dynamic scale starts at 2 to this power"},
      {"fp16.loss_scale_window", kInteger, kHonored, "1000", "", kDefault,
       "steps without overflow after which the dynamic scale doubles; must be > 0 if the scale is "
       "dynamic"},
      {"fp16.hysteresis", kInteger, kHonored, "2", ">= 1", kDefault,
       "overflows that are tolerated before the dynamic scale halves"},
      {"fp16.consecutive_hysteresis", kBool, kHonored, "false", "", kDefault,
       "every step without overflow restores the hysteresis, not only a doubling"},
      {"fp16.min_loss_scale", kInteger, kHonored, "1", "", kDefault,
       "minimum of the dynamic scale; must be > 0 if the scale is dynamic; an overflow at the "
       "minimum ends the run"},
      refused("fp16.fp16_master_weights_and_grads", "false",
              "not supported yet: masters of an fp16 run are fp32"),
      section("bf16", "bfloat16 with fp32 masters (also spelled bfloat16)"),
      {"bf16.enabled", kBool, kHonored, "false", "", "--bf16", "computes in bfloat16"},
      no_effect("bf16.immediate_grad_update", kBool, "false",
                "gradients are accumulated in fp32 as they are produced"),
      honored(
          "bf16.check_grad_overflow", kBool, "true", "",
          "a step with non-finite gradients is skipped; false: it is applied, and ends the run"),
      honored("bf16.bf16_master_weights_and_grads", kBool, "false", "",
              "with offload_optimizer, at stages 1 to 3: masters are kept in bf16, rounded "
              "stochastically; gradients accumulate in data_types.grad_accum_dtype"),
      honored(
          "bf16.bf16_optimizer_states", kBool, "false", "",
          "with bf16_master_weights_and_grads: moments are kept in bf16, rounded stochastically"),
  };
}

std::vector<ConfigKey> recompute_rows() {
  constexpr std::string_view kRecompute = "activation_checkpointing";
  return {
      section(kRecompute, "recompute: blocks run forward again in backward, to save memory"),
      {"activation_checkpointing.number_checkpoints", kInteger, kHonored, "null", ">= 0", "",
       "keeps this many evenly spaced block inputs and recomputes everything between; null or 0: "
       "off"},
      no_effect("activation_checkpointing.partition_activations", kBool, "false",
                "with tensor_parallel, saved inputs are always split over its ranks"),
      {"activation_checkpointing.cpu_checkpointing", kBool, kHonored, "false", "", "",
       "offloads saved inputs to host memory until backward; a run on the CPU has them there "
       "anyway"},
      no_effect("activation_checkpointing.contiguous_memory_optimization", kBool, "false",
                "saved inputs are single tensors"),
      no_effect("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false",
                "recompute needs no synchronization"),
      no_effect("activation_checkpointing.profile", kBool, "false",
                "wall_clock_breakdown times the phases"),
  };
}

}  // namespace

std::vector<ConfigKey> training_rows() {
  return joined({batch_rows(), precision_rows(), recompute_rows()});
}

std::vector<ConfigKey> gradient_rows() {
  return {
      refused("managed_gradient_accumulation", "true",
              "not supported yet: the engine counts the micro-batches"),
      honored("prescale_gradients", kBool, "false", "",
              "an all-reduce divides by the number of ranks before the sum, not after; a "
              "reduce-scatter does "
              "so in any case"),
      honored("gradient_predivide_factor", kNumber, "1.0", "> 0",
              "without prescale_gradients: the part of that division that is applied before the "
              "sum; a value other than 1 applies to a reduce-scatter too"),
      ignoring_case(
          honored("gradient_allreduce_op", kString, "\"mean\"", "\"mean\" | \"sum\"",
                  "sum: every gradient is the number of ranks times the mean, at stage 3 too")),
      ignoring_case(
          honored("communication_data_type", kString, "null", "\"fp32\" | \"fp16\" | \"bf16\"",
                  "precision in which gradients are communicated; null: the working precision, in "
                  "which NCCL rounds a sum at each hop from GPU to GPU")),
      ignoring_case({"seq_parallel_communication_data_type", kString, kNoEffect, "\"fp32\"",
                     "\"fp32\" | \"fp16\" | \"bf16\" | null", kDefault,
                     "sequences are not split over ranks"}),
      refused("sparse_gradients", "false", "not supported, as in DeepSpeed"),
      no_effect("disable_allgather", kBool, "false",
                "each stage uses the collective that it needs; the values are the same"),
      section("data_types", "precision per kind of tensor"),
      honored("data_types.grad_accum_dtype", kString, "null", kDtypes,
              "precision in which micro-batches accumulate: fp32 or the working precision; null: "
              "fp32 (DeepSpeed: the working precision)"),
      honored("data_types.param_dtype", kString, "null", kDtypes,
              "must equal the precision of the sections fp16 and bf16"),
      refused("data_types.buffer_dtype", "null",
              "rotary tables and other buffers are fp32: 16 bits are not enough for positions",
              "\"fp32\" | \"float32\""),
      no_effect("data_types.keep_in_fp32_modules", kList, "\"auto\"", "buffers are always fp32"),
      refused_section("torch_autocast", "enabled = false", "dtype lower_precision_safe_modules",
                      "not supported yet: use bf16 or fp16"),
      refused_section("amp", "enabled = false | \"auto\"", "opt_level *",
                      "not supported, as in DeepSpeed"),
      no_effect("zero_allow_untested_optimizer", kBool, "false",
                "every supported optimizer works at every stage"),
      no_effect("zero_force_ds_cpu_optimizer", kBool, "true",
                "the CPU update is the same for every optimizer"),
  };
}

}  // namespace zeroth::configs
