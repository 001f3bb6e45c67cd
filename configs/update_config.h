// The resolved optimizer, learning-rate schedule and fp16 loss scale: the sections optimizer,
// scheduler and fp16 of ds_config.json.
#pragma once

#include <array>
#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::configs {

// LossScaleConfig applies if precision is kFp16.
struct LossScaleConfig {
  // Fixed scale, or 0 for a dynamic one.
  double static_scale = 0;
  // The dynamic scale starts at 2^initial_scale_power.
  int initial_scale_power = 16;
  // Steps without overflow after which the dynamic scale doubles.
  int64_t window = 1000;
  // Overflows that are tolerated before the dynamic scale halves.
  int64_t hysteresis = 2;
  // True: every step without overflow restores the hysteresis; false: only a doubling does.
  bool consecutive_hysteresis = false;
  // Minimum of the dynamic scale. An overflow that would halve it further (at the minimum, no
  // hysteresis left) ends the run, as in DeepSpeed.
  double min_scale = 1;

  bool is_dynamic() const { return static_scale == 0; }
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kAdam, kLion, kSgd, kAdagrad, kLamb, kAdamW8bit };
  // Algorithm. Weight decay is decoupled for kAdamW, kAdamW8bit and kLion, a part of the direction
  // for kLamb (see below), and added to the gradient as decay * parameter for the others.
  Kind kind = Kind::kAdamW;
  // Learning rate; WarmupLR, WarmupDecayLR, OneCycle and LRRangeTest replace it by their own. The
  // default in a file depends on the type: 1e-3, Adagrad 1e-2.
  double lr = 1e-3;
  // Coefficients in [0, 1). AdamW, Adam, Lamb: decay rates of the first and the second moment.
  // Lion: weights of the momentum in the sign of an update and in its own average.
  std::array<double, 2> betas = {0.9, 0.999};
  // Term added to the root of the second moment (AdamW, Adam, Lamb) or of the sum of squares
  // (Adagrad, 1e-10).
  double eps = 1e-8;
  // AdamW, Adam, Lamb: whether moments are divided by 1 - beta^n at update n.
  bool bias_correction = true;
  // Weight-decay coefficient; 0: none.
  double weight_decay = 0;
  // True: norm weights and biases are not decayed (--no-decay). DeepSpeed decays everything by
  // default.
  bool no_decay = false;
  // SGD as torch.optim.SGD: buffer = momentum * buffer + (1 - dampening) * gradient; the first
  // update sets buffer = gradient; nesterov steps along gradient + momentum * buffer.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // Adagrad as torch.optim.Adagrad: the rate of update s (from 0) is lr / (1 + s * lr_decay); the
  // sums of squares start at initial_accumulator_value.
  double lr_decay = 0;
  double initial_accumulator_value = 0;
  // Lamb as DeepSpeed's FusedLamb: direction = moment / (root + eps) + decay * parameter, times lr
  // * c, with c = norm(parameter) / norm(direction) of each full parameter, between min_coeff and
  // max_coeff; c is 1 if either norm is 0. eps_inside_sqrt adds eps to the second moment.
  bool eps_inside_sqrt = false;
  double max_coeff = 10;
  double min_coeff = 0.01;
  // AdamW8bit as bitsandbytes' (optim/coded_states.h): parameters of fewer elements keep their
  // moments in fp32.
  int64_t min_8bit_size = 4096;
  // Precision in which moments, and masters, are stored: fp32, or bf16 rounded stochastically (bits
  // from a counter: the same on any number of ranks). bf16 masters are also the working weights.
  // Requires offload_optimizer and a bf16 run.
  bool bf16_states = false;
  bool bf16_masters = false;

  // Returns the same optimizer with states in fp32: kAdamW for kAdamW8bit, which keeps those of
  // small parameters there.
  OptimizerConfig with_fp32_states() const {
    OptimizerConfig same = *this;
    if (kind == Kind::kAdamW8bit) same.kind = Kind::kAdamW;
    return same;
  }
  bool has_betas() const { return kind != Kind::kSgd && kind != Kind::kAdagrad; }
  bool keeps_bf16() const { return bf16_states || bf16_masters; }
};

// OneCycleConfig is DeepSpeed's OneCycle. s is the index of the update from 0, N1 and N2 are the
// two step sizes and N = N1 + N2. While s <= N the rate is min + (max - min) * f; f rises from 0 at
// s % N == 0 to 1 at N1 and falls back to 0 at N; with stairs, f = floor(f * stairs) / stairs in
// that half. Later the rate is min_lr / (1 + decay_lr_rate * (s - N) / decay_step_size), or min_lr
// if either is 0.
struct OneCycleConfig {
  // min, max, N1 and N2, then the stairs of each half (0: none) and the decay.
  double min_lr = 0;
  double max_lr = 0;
  double first_step_size = 2000;
  // Resolved: a value that is absent in the file equals the first half's.
  double second_step_size = 2000;
  int64_t first_stair_count = 0;
  int64_t second_stair_count = 0;
  double decay_step_size = 0;
  double decay_lr_rate = 0;
  // True: betas cycle. Those of update 0 are {min_momentum, 0.99}, of update s >= 1 {max - (max -
  // min) * f, 0.99}, and after the cycle {max * (1 + decay_momentum_rate * (s - N) /
  // decay_step_size), 0.99}, or max if either is 0. They replace both OptimizerConfig::betas.
  // Always false if the optimizer has no betas (SGD, Adagrad).
  bool cycle_momentum = true;
  double min_momentum = 0.8;
  double max_momentum = 0.9;
  double decay_momentum_rate = 0;
};

// LrRangeTestConfig is DeepSpeed's LRRangeTest: the rate of update s is min_lr * (1 + step_rate * s
// / step_size).
struct LrRangeTestConfig {
  // Rate of the first update.
  double min_lr = 1e-3;
  int64_t step_size = 2000;
  double step_rate = 1.0;
  // True: s / step_size is rounded down.
  bool staircase = false;
};

// SchedulerConfig determines the learning rate of update s, which counts applied updates from 0; a
// skipped step does not advance it.
struct SchedulerConfig {
  enum class Kind {
    kConstant,
    kWarmupLr,
    kWarmupDecayLr,
    kWarmupCosineLr,
    kOneCycle,
    kLrRangeTest,
    kHuggingFace
  };
  enum class Warmup { kLog, kLinear };
  // Schedule. kConstant: the optimizer's lr at every update. kHuggingFace: `hf` determines the
  // rate, up to the optimizer's lr.
  Kind kind = Kind::kConstant;
  // kWarmupLr, kWarmupDecayLr: the rates before and after the warm-up.
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  // Updates of the warm-up, as in the file; at least 1 for the types of a file, where DeepSpeed
  // counts 1 as 2.
  int64_t warmup_num_steps = 1000;
  // Shape of the warm-up.
  Warmup warmup_type = Warmup::kLog;
  // kWarmupDecayLr, kWarmupCosineLr: the update at which the rate reaches its final value.
  int64_t total_num_steps = 0;
  // kWarmupCosineLr: ratios to the optimizer's lr.
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
  // Used with kOneCycle.
  OneCycleConfig one_cycle = {};
  // Used with kLrRangeTest.
  LrRangeTestConfig range_test = {};
  // Used with kHuggingFace.
  HfSchedule hf = {};

  bool is_hugging_face() const { return kind == Kind::kHuggingFace; }
};

}  // namespace zeroth::configs
