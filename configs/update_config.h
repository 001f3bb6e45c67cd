// The resolved optimizer, learning-rate schedule and fp16 loss scale: what ds_config.json calls
// optimizer, scheduler and fp16.
#pragma once

#include <array>
#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::configs {

// Used when precision is kFp16.
struct LossScaleConfig {
  // 0 means dynamic; any other value is the fixed scale.
  double static_scale = 0;
  // The dynamic scale starts at 2^initial_scale_power.
  int initial_scale_power = 16;
  // Clean steps after which the dynamic scale doubles.
  int64_t window = 1000;
  // Overflows that are tolerated before the dynamic scale halves.
  int64_t hysteresis = 2;
  // Whether every clean step restores the hysteresis (otherwise only a doubling does).
  bool consecutive_hysteresis = false;
  // The dynamic scale never falls below this. An overflow that would have to halve it further (at
  // the floor, no hysteresis left) ends the run, as in DeepSpeed.
  double min_scale = 1;
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kAdam, kLion, kSgd, kAdagrad, kLamb };
  // kAdamW, kLion: decoupled weight decay; kLamb: a part of the direction, see below; the others
  // add decay * parameter to the gradient.
  Kind kind = Kind::kAdamW;
  // Learning rate; WarmupLR, WarmupDecayLR, OneCycle and LRRangeTest replace it by their own. Its
  // default in a file depends on the type: 1e-3, Adagrad 1e-2.
  double lr = 1e-3;
  // In [0, 1). AdamW, Adam, Lamb: decay rates of the first and the second moment. Lion: weights of
  // the momentum in the sign of an update and in its own average.
  std::array<double, 2> betas = {0.9, 0.999};
  // Added to the root: of the second moment (AdamW, Adam, Lamb), of the sum of squares (Adagrad,
  // 1e-10).
  double eps = 1e-8;
  // AdamW, Adam, Lamb: whether moments are divided by 1 - beta^n at update n.
  bool bias_correction = true;
  // Strength of the decay; 0: none.
  double weight_decay = 0;
  // Norm weights and biases are not decayed (--no-decay). DeepSpeed decays everything by default.
  bool no_decay = false;
  // SGD as torch.optim.SGD: buffer = momentum * buffer + (1 - dampening) * gradient, where the
  // first update sets buffer = gradient; nesterov steps along gradient + momentum * buffer.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // Adagrad as torch.optim.Adagrad: the rate of update s (from 0) is lr / (1 + s * lr_decay); the
  // sums of squares start at initial_accumulator_value.
  double lr_decay = 0;
  double initial_accumulator_value = 0;
  // Lamb as DeepSpeed's FusedLamb: direction = moment / (root + eps) + decay * parameter, times
  // lr * c, with c = norm(parameter) / norm(direction) of each whole parameter, between min_coeff
  // and max_coeff; 1 where either norm is 0. eps_inside_sqrt: eps is added to the second moment.
  bool eps_inside_sqrt = false;
  double max_coeff = 10;
  double min_coeff = 0.01;
  // Precision in which moments, and masters, rest: fp32, or bf16 rounded stochastically (bits from
  // a counter: the same on any number of ranks). With bf16 masters the working weights are the
  // masters. Only with offload_optimizer, in bf16 runs.
  bool bf16_states = false;
  bool bf16_masters = false;
};

// DeepSpeed's OneCycle. With s the update counted from 0, N1 and N2 the two step sizes and
// N = N1 + N2: while s <= N the rate is min + (max - min) * f, where f rises from 0 at s % N == 0
// to 1 at N1 and falls back to 0 at N; with stairs, f = floor(f * stairs) / stairs in that half.
// Later: min_lr / (1 + decay_lr_rate * (s - N) / decay_step_size), or min_lr where either is 0.
struct OneCycleConfig {
  // min, max, N1 and N2, then the stairs of each half (0: none) and the decay.
  double min_lr = 0;
  double max_lr = 0;
  double first_step_size = 2000;
  // Resolved: what is absent in the file equals the first half's.
  double second_step_size = 2000;
  int64_t first_stair_count = 0;
  int64_t second_stair_count = 0;
  double decay_step_size = 0;
  double decay_lr_rate = 0;
  // betas of update 0 are {min_momentum, 0.99}; of update s >= 1 {max - (max - min) * f, 0.99}, and
  // after the cycle {max * (1 + decay_momentum_rate * (s - N) / decay_step_size), 0.99}, or max
  // where either is 0. Replaces OptimizerConfig::betas, the second too. Always false where the
  // optimizer has no betas (SGD, Adagrad).
  bool cycle_momentum = true;
  double min_momentum = 0.8;
  double max_momentum = 0.9;
  double decay_momentum_rate = 0;
};

// DeepSpeed's LRRangeTest: the rate of update s is min_lr * (1 + step_rate * s / step_size).
struct LrRangeTestConfig {
  // The rate of the first update.
  double min_lr = 1e-3;
  int64_t step_size = 2000;
  double step_rate = 1.0;
  // s / step_size is rounded down.
  bool staircase = false;
};

// The learning rate of update s (counted from 0 over applied updates; a skipped step does not
// advance it).
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
  // kConstant: the optimizer's lr at every update. kHuggingFace: `hf` says all, but for the
  // optimizer's lr at its top.
  Kind kind = Kind::kConstant;
  // kWarmupLr, kWarmupDecayLr: the rates before and after the warm-up.
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  // Updates of the warm-up as the file says it; in the types of a file at least 1, where DeepSpeed
  // counts 1 as 2.
  int64_t warmup_num_steps = 1000;
  // Shape of the warm-up.
  Warmup warmup_type = Warmup::kLog;
  // kWarmupDecayLr, kWarmupCosineLr: the rate reaches its end at this update.
  int64_t total_num_steps = 0;
  // kWarmupCosineLr: ratios of the optimizer's lr.
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
  // kOneCycle.
  OneCycleConfig one_cycle = {};
  // kLrRangeTest.
  LrRangeTestConfig range_test = {};
  // kHuggingFace.
  HfSchedule hf = {};
};

}  // namespace zeroth::configs
