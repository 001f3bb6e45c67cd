#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

// Returns the field of a section's switch, which is true if the run has this precision.
template <Precision kPrecision>
constexpr Field is_precision() {
  return {kBool, [](const Config& config) -> nlohmann::ordered_json {
            return config.precision == kPrecision;
          }};
}

// Returns the field of min_loss_scale, an integer for files and a number for the loss scaler.
constexpr Field min_loss_scale() {
  Field number = field<&LossScaleConfig::min_scale>();
  number.type = kInteger;
  number.get = [](const Config& config) -> nlohmann::ordered_json {
    return static_cast<int64_t>(config.loss_scale.min_scale);
  };
  return number;
}

std::vector<ConfigKey> batch_rows() {
  return {
      honored("train_batch_size", field<&BatchConfig::train_batch_size>(), "null",
              "1..1000000000000",
              "samples per optimizer step over all ranks; always micro-batch * accumulation * "
              "ranks, where a tensor-parallel group counts as one rank",
              {.auto_value = "--global-batch, else the product",
               .flag = "--global-batch",
               .on_resume = kMustEqual}),
      honored("train_micro_batch_size_per_gpu", field<&BatchConfig::micro_batch_size>(), "null",
              "1..1000000", "samples that one rank runs at once; activation memory grows with it",
              {.auto_value = "--micro-batch, else from the other two, else 8",
               .flag = "--micro-batch"}),
      honored("gradient_accumulation_steps", field<&BatchConfig::accumulation_steps>(), "null",
              "1..1000000",
              "micro-batches per optimizer step; more cost time but, unless breadth-first, no "
              "activation memory",
              {.auto_value = "--accumulation, else from the other two, else 1",
               .flag = "--accumulation"}),
      honored("gradient_clipping", field<&Config::gradient_clipping>(), "1.0", ">= 0",
              "global L2 norm to which gradients are clipped; 0 switches clipping off",
              {.flag = "--max-grad-norm", .on_resume = kMustEqualUnlessAllowed}),
      honored("dataloader_drop_last", field<&Config::dataloader_drop_last>(), "false", "",
              "drops samples at the end of an epoch that do not fill a global batch",
              {.auto_value = kDefault, .flag = "--drop-last", .on_resume = kMustEqual}),
  };
}

std::vector<ConfigKey> precision_rows() {
  return {
      section("fp16", "half precision with loss scaling and fp32 masters"),
      honored("fp16.enabled", is_precision<Precision::kFp16>(), "false", "", "computes in fp16",
              {.flag = "--fp16"}),
      no_effect("fp16.auto_cast", kBool, "false", "the inputs of the model are token ids"),
      honored("fp16.loss_scale", field<&LossScaleConfig::static_scale>(), "0", ">= 0",
              "fixed loss scale; 0 means dynamic"),
      honored("fp16.initial_scale_power", field<&LossScaleConfig::initial_scale_power>(), "16",
              "0..62", "the dynamic scale starts at 2 to this power"),
      honored("fp16.loss_scale_window", field<&LossScaleConfig::window>(), "1000", "",
              "steps without overflow after which the dynamic scale doubles; must be > 0 if the "
              "scale is dynamic"),
      honored("fp16.hysteresis", field<&LossScaleConfig::hysteresis>(), "2", ">= 1",
              "overflows that are tolerated before the dynamic scale halves"),
      honored("fp16.consecutive_hysteresis", field<&LossScaleConfig::consecutive_hysteresis>(),
              "false", "",
              "every step without overflow restores the hysteresis, not only a doubling"),
      honored("fp16.min_loss_scale", min_loss_scale(), "1", "",
              "minimum of the dynamic scale; must be > 0 if the scale is dynamic; an overflow at "
              "the minimum ends the run"),
      refused("fp16.fp16_master_weights_and_grads", "false",
              "not supported yet: masters of an fp16 run are fp32"),
      section("bf16", "bfloat16 with fp32 masters (also spelled bfloat16)"),
      honored("bf16.enabled", is_precision<Precision::kBf16>(), "false", "", "computes in bfloat16",
              {.flag = "--bf16"}),
      no_effect("bf16.immediate_grad_update", kBool, "false",
                "gradients are accumulated in fp32 as they are produced"),
      honored(
          "bf16.check_grad_overflow", field<&Config::check_grad_overflow>(), "true", "",
          "a step with non-finite gradients is skipped; false: it is applied, and ends the run"),
      honored("bf16.bf16_master_weights_and_grads", field<&OptimizerConfig::bf16_masters>(),
              "false", "",
              "with offload_optimizer, at stages 1 to 3: masters are kept in bf16, rounded "
              "stochastically; gradients accumulate in data_types.grad_accum_dtype"),
      honored(
          "bf16.bf16_optimizer_states", field<&OptimizerConfig::bf16_states>(), "false", "",
          "with bf16_master_weights_and_grads: moments are kept in bf16, rounded stochastically"),
  };
}

std::vector<ConfigKey> recompute_rows() {
  constexpr std::string_view kRecompute = "activation_checkpointing";
  return {
      section(kRecompute, "recompute: blocks run forward again in backward, to save memory"),
      honored("activation_checkpointing.number_checkpoints",
              field<&RecomputeConfig::number_checkpoints>(), "null", ">= 0",
              "keeps this many evenly spaced block inputs, breadth-first that of every block, and "
              "recomputes everything between; null or 0: off",
              {.auto_value = ""}),
      no_effect("activation_checkpointing.partition_activations", kBool, "false",
                "with tensor_parallel, saved inputs are always split over its ranks"),
      honored("activation_checkpointing.cpu_checkpointing",
              field<&RecomputeConfig::cpu_checkpointing>(), "false", "",
              "offloads saved inputs to host memory until backward; a run on the CPU has them "
              "there anyway",
              {.auto_value = ""}),
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
      honored("prescale_gradients", field<&GradientConfig::prescale>(), "false", "",
              "an all-reduce divides by the number of ranks before the sum, not after; a "
              "reduce-scatter does so in any case"),
      honored("gradient_predivide_factor", field<&GradientConfig::predivide_factor>(), "1.0", "> 0",
              "without prescale_gradients: the part of that division that is applied before the "
              "sum; a value other than 1 applies to a reduce-scatter too"),
      ignoring_case(
          honored("gradient_allreduce_op", field<&GradientConfig::reduce>(), "\"mean\"",
                  "\"mean\" | \"sum\"",
                  "sum: every gradient is the number of ranks times the mean, at stage 3 too")),
      ignoring_case(honored("communication_data_type", field<&GradientConfig::communication>(),
                            "null", "\"fp32\" | \"fp16\" | \"bf16\"",
                            "precision in which gradients are communicated; null: the working "
                            "precision, in which NCCL rounds a sum at each hop from GPU to GPU")),
      ignoring_case(no_effect("seq_parallel_communication_data_type", kString, "\"fp32\"",
                              "sequences are not split over ranks",
                              "\"fp32\" | \"fp16\" | \"bf16\" | null")),
      refused("sparse_gradients", "false", "not supported, as in DeepSpeed"),
      no_effect("disable_allgather", kBool, "false",
                "each stage uses the collective that it needs; the values are the same"),
      section("data_types", "precision per kind of tensor"),
      honored("data_types.grad_accum_dtype", field<&GradientConfig::accumulation>(), "null",
              kDtypes,
              "precision in which micro-batches accumulate: fp32 or the working precision; null: "
              "fp32 (DeepSpeed: the working precision)"),
      honored("data_types.param_dtype", print_only(field<&Config::precision>()), "null", kDtypes,
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
