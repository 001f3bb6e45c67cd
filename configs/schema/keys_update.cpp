#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

// Returns the field of adam_w_mode, in which the two types differ.
constexpr Field adam_w_mode() {
  return {kBool, [](const Config& config) -> nlohmann::ordered_json {
            return config.optimizer.kind == OptimizerConfig::Kind::kAdamW;
          }};
}

std::vector<ConfigKey> optimizer_rows() {
  return {
      section("optimizer", "without it: AdamW with the values of the flags", kMustEqual),
      honored(
          "optimizer.type", print_only(field<&OptimizerConfig::kind>()), "null", "",
          "Adam, AdamW, Lion, SGD, Adagrad, Lamb, AdamW8bit or Adam8bit in any case; Adam is AdamW "
          "unless adam_w_mode is false; Adam8bit is AdamW8bit; OneBitAdam, ZeroOneAdam and "
          "OneBitLamb with --accept-uncompressed, see above",
          {.auto_value = ""}),
      section("optimizer.params", "absent keys have DeepSpeed's defaults", kMustEqualUnlessAllowed),
      honored("optimizer.params.lr", field<&OptimizerConfig::lr>(), "0.001", ">= 0",
              "learning rate; default of Adagrad: 0.01", {.flag = "--lr"}),
      honored("optimizer.params.betas", field<&OptimizerConfig::betas>(), "[0.9, 0.999]", "[0, 1)",
              "Adam, AdamW, AdamW8bit, Lamb: decay rates of the two moments; Lion: weights of the "
              "momentum in "
              "an update and in its own average",
              {.flag = "--betas"}),
      honored("optimizer.params.eps", field<&OptimizerConfig::eps>(), "1e-08", ">= 0",
              "Adam, AdamW, AdamW8bit, Adagrad, Lamb: added to the root; default of Adagrad: 1e-10",
              {.flag = "--eps"}),
      honored("optimizer.params.weight_decay", field<&OptimizerConfig::weight_decay>(), "0.0",
              ">= 0",
              "weight decay: decoupled in AdamW, AdamW8bit and Lion, a part of the direction in "
              "Lamb, added "
              "to the gradient in the others",
              {.flag = "--weight-decay"}),
      honored("optimizer.params.adam_w_mode", adam_w_mode(), "true", "",
              "false with type Adam: weight decay is added to the gradient", {.auto_value = ""}),
      honored(
          "optimizer.params.bias_correction", field<&OptimizerConfig::bias_correction>(), "true",
          "",
          "Adam, AdamW, AdamW8bit, Lamb: false: moments are not divided by 1 - beta^n at update n"),
      honored("optimizer.params.momentum", field<&OptimizerConfig::momentum>(), "0.0", "[0, 1)",
              "SGD: fraction of the last update direction that is kept"),
      honored("optimizer.params.dampening", field<&OptimizerConfig::dampening>(), "0.0", "0..1",
              "SGD: a gradient is multiplied by 1 - dampening in the momentum"),
      honored("optimizer.params.nesterov", field<&OptimizerConfig::nesterov>(), "false", "",
              "SGD: Nesterov momentum; needs momentum > 0 and dampening 0"),
      honored("optimizer.params.lr_decay", field<&OptimizerConfig::lr_decay>(), "0.0", ">= 0",
              "Adagrad: the rate of update s is lr / (1 + s * lr_decay)"),
      honored("optimizer.params.initial_accumulator_value",
              field<&OptimizerConfig::initial_accumulator_value>(), "0.0", ">= 0",
              "Adagrad: initial value of the sums of squares"),
      honored("optimizer.params.eps_inside_sqrt", field<&OptimizerConfig::eps_inside_sqrt>(),
              "false", "", "Lamb: eps is added to the second moment, not to its root"),
      honored("optimizer.params.max_coeff", field<&OptimizerConfig::max_coeff>(), "10.0", ">= 0",
              "Lamb: the ratio of a parameter's norm to its direction's is at most this"),
      honored("optimizer.params.min_coeff", field<&OptimizerConfig::min_coeff>(), "0.01", ">= 0",
              "Lamb: the ratio is at least this"),
      honored("optimizer.params.min_8bit_size", field<&OptimizerConfig::min_8bit_size>(), "4096",
              ">= 0", "AdamW8bit: parameters of fewer numbers keep moments in fp32"),
  };
}

std::vector<ConfigKey> other_optimizer_rows() {
  constexpr std::string_view kOne = "there is one implementation";
  return {
      refused("optimizer.params.amsgrad", "false", "not supported, as in DeepSpeed"),
      refused("optimizer.params.maximize", "false", "not supported: the loss is minimized"),
      refused("optimizer.params.fp32_optimizer_states", "true",
              "use bf16.bf16_optimizer_states instead; moments are fp32 otherwise"),
      honored("optimizer.params.max_grad_norm", {kNumber}, "null", ">= 0",
              "used as gradient_clipping, with a warning; must equal it if both are given; "
              "DeepSpeed refuses it",
              {.auto_value = "", .flag = "--max-grad-norm"}),
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
              "constant rate",
              kMustEqualUnlessAllowed),
      honored("scheduler.type", print_only(field<&SchedulerConfig::kind>()), "null", "",
              "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest, case-sensitive",
              {.auto_value = ""}),
      section("scheduler.params", "required with a type"),
      honored("scheduler.params.warmup_min_lr", field<&SchedulerConfig::warmup_min_lr>(), "0.0",
              ">= 0", "WarmupLR, WarmupDecayLR: rate of the first update", {.auto_value = "0"}),
      honored("scheduler.params.warmup_max_lr", field<&SchedulerConfig::warmup_max_lr>(), "null",
              ">= 0",
              "WarmupLR, WarmupDecayLR: rate after the warm-up; absent: the optimizer's lr in "
              "WarmupLR, --lr or 0.001 in WarmupDecayLR",
              {.auto_value = "the optimizer's lr", .flag = "--lr"}),
      honored("scheduler.params.warmup_num_steps", field<&SchedulerConfig::warmup_num_steps>(),
              "1000", ">= 1", "Warmup types: updates of the warm-up (DeepSpeed counts 1 as 2)",
              {.auto_value = "--warmup-steps or --warmup-ratio, else 1", .flag = "--warmup-steps"}),
      honored("scheduler.params.warmup_type", field<&SchedulerConfig::warmup_type>(), "\"log\"", "",
              "Warmup types: shape of the warm-up, log or linear; any other name means log, as in "
              "DeepSpeed"),
      honored("scheduler.params.total_num_steps", field<&SchedulerConfig::total_num_steps>(),
              "null", ">= 1",
              "WarmupDecayLR, WarmupCosineLR: required; the update at which the rate reaches its "
              "final value",
              {.auto_value = "the steps of the run", .on_resume = kMayDiffer}),
      honored("scheduler.params.warmup_min_ratio", field<&SchedulerConfig::warmup_min_ratio>(),
              "0.0", ">= 0", "WarmupCosineLR: first rate as a ratio of the optimizer's lr",
              {.auto_value = ""}),
      honored("scheduler.params.cos_min_ratio", field<&SchedulerConfig::cos_min_ratio>(), "0.0001",
              ">= 0", "WarmupCosineLR: last rate as a ratio of the optimizer's lr",
              {.auto_value = ""}),
  };
}

std::vector<ConfigKey> cycle_rows() {
  return {
      honored("scheduler.params.cycle_min_lr", field<&OneCycleConfig::min_lr>(), "null", ">= 0",
              "OneCycle: required; rate at both ends of the cycle", {.auto_value = ""}),
      honored("scheduler.params.cycle_max_lr", field<&OneCycleConfig::max_lr>(), "null", ">= 0",
              "OneCycle: required; rate at the top of the cycle", {.auto_value = ""}),
      honored("scheduler.params.cycle_first_step_size", field<&OneCycleConfig::first_step_size>(),
              "2000", "> 0", "OneCycle: updates of the rising half"),
      honored("scheduler.params.cycle_second_step_size", field<&OneCycleConfig::second_step_size>(),
              "null", ">= 0",
              "OneCycle: updates of the falling half; null: as many as in the rising half"),
      honored("scheduler.params.cycle_first_stair_count",
              field<&OneCycleConfig::first_stair_count>(), "0", ">= 0",
              "OneCycle: stairs of the rising half; 0: none"),
      honored("scheduler.params.cycle_second_stair_count",
              field<&OneCycleConfig::second_stair_count>(), "null", ">= 0",
              "OneCycle: stairs of the falling half; null: as many as in the rising half"),
      honored("scheduler.params.decay_step_size", field<&OneCycleConfig::decay_step_size>(), "0",
              ">= 0", "OneCycle: updates per decay after the cycle; 0: no decay"),
      honored("scheduler.params.decay_lr_rate", field<&OneCycleConfig::decay_lr_rate>(), "0.0",
              ">= 0", "OneCycle: decay of the rate after the cycle"),
      honored("scheduler.params.cycle_momentum", field<&OneCycleConfig::cycle_momentum>(), "true",
              "",
              "OneCycle: the first beta moves inversely to the rate, the second is 0.99; false if "
              "the optimizer has no betas"),
      honored("scheduler.params.cycle_min_mom", field<&OneCycleConfig::min_momentum>(), "0.8",
              "[0, 1)", "OneCycle: first beta at the top of the cycle"),
      honored("scheduler.params.cycle_max_mom", field<&OneCycleConfig::max_momentum>(), "0.9",
              "[0, 1)", "OneCycle: first beta at both ends of the cycle"),
      honored("scheduler.params.decay_mom_rate", field<&OneCycleConfig::decay_momentum_rate>(),
              "0.0", ">= 0", "OneCycle: growth of the first beta after the cycle"),
  };
}

std::vector<ConfigKey> range_test_rows() {
  return {
      honored("scheduler.params.lr_range_test_min_lr", field<&LrRangeTestConfig::min_lr>(), "0.001",
              ">= 0", "LRRangeTest: rate of the first update"),
      honored("scheduler.params.lr_range_test_step_size", field<&LrRangeTestConfig::step_size>(),
              "2000", ">= 1",
              "LRRangeTest: updates in which the rate grows by step_rate times its first value"),
      honored("scheduler.params.lr_range_test_step_rate", field<&LrRangeTestConfig::step_rate>(),
              "1.0", ">= 0", "LRRangeTest: growth"),
      honored("scheduler.params.lr_range_test_staircase", field<&LrRangeTestConfig::staircase>(),
              "false", "", "LRRangeTest: grows in stairs"),
      refused("scheduler.params.last_batch_iteration", "-1", "the schedule starts with the run"),
  };
}

}  // namespace

std::vector<ConfigKey> update_rows() {
  return joined({optimizer_rows(), other_optimizer_rows(), compression_rows(), warmup_rows(),
                 cycle_rows(), range_test_rows()});
}

}  // namespace zeroth::configs
