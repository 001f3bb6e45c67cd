// Hugging Face's learning-rate schedules as in transformers: resolved --lr_scheduler_type and
// --lr_scheduler_kwargs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace zeroth::configs {

// PlateauConfig configures torch's ReduceLROnPlateau: it multiplies the rate by `factor` after more
// than `patience` evaluations in a row without an improvement.
struct PlateauConfig {
  bool greater_is_better = false;  // mode "max"
  bool relative = true;            // threshold_mode "rel"
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  int64_t cooldown = 0;  // evaluations after a reduction that do not count as bad
  double min_lr = 0;
  double eps = 1e-8;  // a smaller reduction is skipped
};

// HfSchedule is one schedule. n is the index of an update, from 0. Except for kConstant,
// kCosineWarmupWithMinLr and kReduceOnPlateau the rate of update n < warmup_steps is n /
// warmup_steps of the optimizer's lr.
struct HfSchedule {
  enum class Type {
    kConstant,
    kConstantWithWarmup,
    kLinear,
    kCosine,
    kCosineWithRestarts,
    kPolynomial,
    kInverseSqrt,
    kCosineWithMinLr,
    kCosineWarmupWithMinLr,
    kWarmupStableDecay,
    kReduceOnPlateau
  };
  enum class Shape { kLinear, kCosine, kOneMinusSqrt };

  Type type = Type::kConstant;
  int64_t warmup_steps = 0;
  // Updates of the run: the end of kLinear, kCosine... and kPolynomial.
  int64_t total_steps = 0;
  double num_cycles = 0.5;  // of the cosines; kCosineWithRestarts: 1
  double lr_end = 1e-7;     // kPolynomial: the last rate, to which it falls by `power`
  double power = 1;
  int64_t timescale = 10'000;  // kInverseSqrt
  // Ratio to the optimizer's lr: kCosineWithMinLr, kCosineWarmupWithMinLr, kWarmupStableDecay.
  double min_lr_rate = 0;
  std::optional<double> warmup_lr_rate = {};  // kCosineWarmupWithMinLr: first rate / lr
  // kWarmupStableDecay: updates at lr after the warm-up, then updates of the decay.
  int64_t stable_steps = 0;
  int64_t decay_steps = 0;
  Shape warmup_shape = Shape::kLinear;
  Shape decay_shape = Shape::kCosine;
  PlateauConfig plateau = {};
};

// Names of the types in transformers.
inline constexpr std::array<std::pair<std::string_view, HfSchedule::Type>, 11> kHfScheduleNames = {{
    {"constant", HfSchedule::Type::kConstant},
    {"constant_with_warmup", HfSchedule::Type::kConstantWithWarmup},
    {"linear", HfSchedule::Type::kLinear},
    {"cosine", HfSchedule::Type::kCosine},
    {"cosine_with_restarts", HfSchedule::Type::kCosineWithRestarts},
    {"polynomial", HfSchedule::Type::kPolynomial},
    {"inverse_sqrt", HfSchedule::Type::kInverseSqrt},
    {"cosine_with_min_lr", HfSchedule::Type::kCosineWithMinLr},
    {"cosine_warmup_with_min_lr", HfSchedule::Type::kCosineWarmupWithMinLr},
    {"warmup_stable_decay", HfSchedule::Type::kWarmupStableDecay},
    {"reduce_lr_on_plateau", HfSchedule::Type::kReduceOnPlateau},
}};

constexpr std::string_view to_string(HfSchedule::Type type) {
  return kHfScheduleNames[static_cast<size_t>(type)].first;
}

// Names of the shapes in transformers, used in --lr_scheduler_kwargs.
inline constexpr std::array<std::pair<std::string_view, HfSchedule::Shape>, 3> kHfShapeNames = {{
    {"linear", HfSchedule::Shape::kLinear},
    {"cosine", HfSchedule::Shape::kCosine},
    {"1-sqrt", HfSchedule::Shape::kOneMinusSqrt},
}};

}  // namespace zeroth::configs
