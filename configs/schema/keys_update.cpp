#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

std::vector<ConfigKey> optimizer_rows() {
  return {
      section("optimizer", "without it: AdamW with the values of the flags"),
      {"optimizer.type", kString, kHonored, "null", "", "",
       "Adam, AdamW, Lion, SGD, Adagrad or Lamb in any case; Adam is AdamW unless adam_w_mode is "
       "false; OneBitAdam, ZeroOneAdam and OneBitLamb with --accept-uncompressed, see above"},
      section("optimizer.params", "absent keys have DeepSpeed's defaults"),
      {"optimizer.params.lr", kNumber, kHonored, "0.001", ">= 0", "--lr",
       "learning rate; default of Adagrad: 0.01"},
      {"optimizer.params.betas", kPair, kHonored, "[0.9, 0.999]", "[0, 1)", "--betas",
       "Adam, AdamW, Lamb: decay rates of the two moments; Lion: weights of the momentum in an "
       "update "
       "and "
       "in its own average"},
      {"optimizer.params.eps", kNumber, kHonored, "1e-08", ">= 0", "--eps",
       "Adam, AdamW, Adagrad, Lamb: added to the root; default of Adagrad: 1e-10"},
      {"optimizer.params.weight_decay", kNumber, kHonored, "0.0", ">= 0", "--weight-decay",
       "weight decay: decoupled in AdamW and Lion, a part of the direction in Lamb, added to the "
       "gradient in the others"},
      {"optimizer.params.adam_w_mode", kBool, kHonored, "true", "", "",
       "false with type Adam: weight decay is added to the gradient"},
      honored("optimizer.params.bias_correction", kBool, "true", "",
              "Adam, AdamW, Lamb: false: moments are not divided by 1 - beta^n at update n"),
      honored("optimizer.params.momentum", kNumber, "0.0", "[0, 1)",
              "SGD: fraction of the last update direction that is kept"),
      honored("optimizer.params.dampening", kNumber, "0.0", "0..1",
              "SGD: a gradient is multiplied by 1 - dampening in the momentum"),
      honored("optimizer.params.nesterov", kBool, "false", "",
              "SGD: Nesterov momentum; needs momentum > 0 and dampening 0"),
      honored("optimizer.params.lr_decay", kNumber, "0.0", ">= 0",
              "Adagrad: the rate of update s is lr / (1 + s * lr_decay)"),
      honored("optimizer.params.initial_accumulator_value", kNumber, "0.0", ">= 0",
              "Adagrad: initial value of the sums of squares"),
      honored("optimizer.params.eps_inside_sqrt", kBool, "false", "",
              "Lamb: eps is added to the second moment, not to its root"),
      honored("optimizer.params.max_coeff", kNumber, "10.0", ">= 0",
              "Lamb: the ratio of a parameter's norm to its direction's is at most this"),
      honored("optimizer.params.min_coeff", kNumber, "0.01", ">= 0",
              "Lamb: the ratio is at least this"),
  };
}

std::vector<ConfigKey> other_optimizer_rows() {
  constexpr std::string_view kOne = "there is one implementation";
  return {
      refused("optimizer.params.amsgrad", "false", "not supported, as in DeepSpeed"),
      refused("optimizer.params.maximize", "false", "not supported: the loss is minimized"),
      refused("optimizer.params.fp32_optimizer_states", "true",
              "use bf16.bf16_optimizer_states instead; moments are fp32 otherwise"),
      {"optimizer.params.max_grad_norm", kNumber, kHonored, "null", ">= 0", "",
       "used as gradient_clipping, with a warning; must equal it if both are given; DeepSpeed "
       "refuses it"},
      no_effect("optimizer.params.torch_adam", kBool, "false", kOne),
      no_effect("optimizer.params.foreach", kBool, "null", kOne),
      no_effect("optimizer.params.fused", kBool, "null", kOne),
      no_effect("optimizer.params.differentiable", kBool, "false",
                "nothing differentiates through an update"),
      no_effect("optimizer.params.set_grad_none", kBool, "true",
                "gradients have their own buffers"),
      no_effect("optimizer.legacy_fusion", kBool, "false", kOne),
  };
}

// Returns the keys of the 1-bit optimizers, which run uncompressed.
std::vector<ConfigKey> compression_rows() {
  constexpr std::string_view kNone = "concerns compression, which is not supported";
  return {
      no_effect("optimizer.params.freeze_step", kInteger, "100000", kNone),
      no_effect("optimizer.params.cuda_aware", kBool, "false", kNone),
      no_effect("optimizer.params.comm_backend_name", kString, "\"nccl\"", kNone),
      no_effect("optimizer.params.var_freeze_step", kInteger, "100000", kNone),
      no_effect("optimizer.params.var_update_scaler", kInteger, "16", kNone),
      no_effect("optimizer.params.local_step_scaler", kInteger, "32678", kNone),
      no_effect("optimizer.params.local_step_clipper", kInteger, "16", kNone),
      no_effect("optimizer.params.coeff_beta", kNumber, "0.9", kNone),
      no_effect("optimizer.params.factor_max", kNumber, "4.0", kNone),
      no_effect("optimizer.params.factor_min", kNumber, "0.5", kNone),
      no_effect("optimizer.params.factor_threshold", kNumber, "0.1", kNone),
  };
}

std::vector<ConfigKey> warmup_rows() {
  return {
      section("scheduler",
              "without it: --lr_scheduler_type, or --warmup-steps linear steps from 0, then a "
              "constant rate"),
      {"scheduler.type", kString, kHonored, "null", "", "",
       "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest, case-sensitive"},
      section("scheduler.params", "required with a type"),
      {"scheduler.params.warmup_min_lr", kNumber, kHonored, "0.0", ">= 0", "0",
       "WarmupLR, WarmupDecayLR: rate of the first update"},
      {"scheduler.params.warmup_max_lr", kNumber, kHonored, "null", ">= 0", "the optimizer's lr",
       "WarmupLR, WarmupDecayLR: rate after the warm-up; absent: the optimizer's lr in WarmupLR, "
       "--lr or 0.001 in WarmupDecayLR"},
      {"scheduler.params.warmup_num_steps", kInteger, kHonored, "1000", ">= 1",
       "--warmup-steps or --warmup-ratio, else 1",
       "Warmup types: updates of the warm-up (DeepSpeed counts 1 as 2)"},
      honored("scheduler.params.warmup_type", kString, "\"log\"", "",
              "Warmup types: shape of the warm-up, log or linear; any other name means log, as in "
              "DeepSpeed"),
      {"scheduler.params.total_num_steps", kInteger, kHonored, "null", ">= 1",
       "the steps of the run",
       "WarmupDecayLR, WarmupCosineLR: required; the update at which the rate reaches its final "
       "value"},
      {"scheduler.params.warmup_min_ratio", kNumber, kHonored, "0.0", ">= 0", "",
       "WarmupCosineLR: first rate as a ratio of the optimizer's lr"},
      {"scheduler.params.cos_min_ratio", kNumber, kHonored, "0.0001", ">= 0", "",
       "WarmupCosineLR: last rate as a ratio of the optimizer's lr"},
  };
}

std::vector<ConfigKey> cycle_rows() {
  return {
      {"scheduler.params.cycle_min_lr", kNumber, kHonored, "null", ">= 0", "",
       "OneCycle: required; rate at both ends of the cycle"},
      {"scheduler.params.cycle_max_lr", kNumber, kHonored, "null", ">= 0", "",
       "OneCycle: required; rate at the top of the cycle"},
      honored("scheduler.params.cycle_first_step_size", kNumber, "2000", "> 0",
              "OneCycle: updates of the rising half"),
      honored("scheduler.params.cycle_second_step_size", kNumber, "null", ">= 0",
              "OneCycle: updates of the falling half; null: as many as in the rising half"),
      honored("scheduler.params.cycle_first_stair_count", kInteger, "0", ">= 0",
              "OneCycle: stairs of the rising half; 0: none"),
      honored("scheduler.params.cycle_second_stair_count", kInteger, "null", ">= 0",
              "OneCycle: stairs of the falling half; null: as many as in the rising half"),
      honored("scheduler.params.decay_step_size", kNumber, "0", ">= 0",
              "OneCycle: updates per decay after the cycle; 0: no decay"),
      honored("scheduler.params.decay_lr_rate", kNumber, "0.0", ">= 0",
              "OneCycle: decay of the rate after the cycle"),
      honored("scheduler.params.cycle_momentum", kBool, "true", "",
              "OneCycle: the first beta moves inversely to the rate, the second is 0.99; false if "
              "the optimizer has no betas"),
      honored("scheduler.params.cycle_min_mom", kNumber, "0.8", "[0, 1)",
              "OneCycle: first beta at the top of the cycle"),
      honored("scheduler.params.cycle_max_mom", kNumber, "0.9", "[0, 1)",
              "OneCycle: first beta at both ends of the cycle"),
      honored("scheduler.params.decay_mom_rate", kNumber, "0.0", ">= 0",
              "OneCycle: growth of the first beta after the cycle"),
  };
}

std::vector<ConfigKey> range_test_rows() {
  return {
      honored("scheduler.params.lr_range_test_min_lr", kNumber, "0.001", ">= 0",
              "LRRangeTest: rate of the first update"),
      honored("scheduler.params.lr_range_test_step_size", kInteger, "2000", ">= 1",
              "LRRangeTest: updates in which the rate grows by step_rate times its first value"),
      honored("scheduler.params.lr_range_test_step_rate", kNumber, "1.0", ">= 0",
              "LRRangeTest: growth"),
      honored("scheduler.params.lr_range_test_staircase", kBool, "false", "",
              "LRRangeTest: grows in stairs"),
      refused("scheduler.params.last_batch_iteration", "-1", "the schedule starts with the run"),
  };
}

}  // namespace

std::vector<ConfigKey> update_rows() {
  return joined({optimizer_rows(), other_optimizer_rows(), compression_rows(), warmup_rows(),
                 cycle_rows(), range_test_rows()});
}

}  // namespace zeroth::configs
