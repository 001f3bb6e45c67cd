// Hugging Face's rate schedules, as transformers has them: --lr_scheduler_type and its
// --lr_scheduler_kwargs, resolved.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace zeroth::configs {

// torch's ReduceLROnPlateau: after more than `patience` evaluations in a row without an improvement
// the rate is multiplied by `factor`.
struct PlateauConfig {
  bool greater_is_better = false;  // mode "max"
  bool relative = true;            // threshold_mode "rel"
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  int64_t cooldown = 0;  // evaluations after a reduction that do not count as bad
  double min_lr = 0;
  double eps = 1e-8;  // a reduction by less is left out
};

// With n the update counted from 0: in all but kConstant, kCosineWarmupWithMinLr and
// kReduceOnPlateau the rate of update n < warmup_steps is n / warmup_steps of the optimizer's lr.
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
  // Updates of the run: the end of kLinear, the kCosine... and kPolynomial.
  int64_t total_steps = 0;
  double num_cycles = 0.5;  // the cosines; kCosineWithRestarts: 1
  double lr_end = 1e-7;     // kPolynomial: the last rate, above which it falls by `power`
  double power = 1;
  int64_t timescale = 10'000;  // kInverseSqrt
  // kCosineWithMinLr, kCosineWarmupWithMinLr, kWarmupStableDecay: of the optimizer's lr.
  double min_lr_rate = 0;
  std::optional<double> warmup_lr_rate = {};  // kCosineWarmupWithMinLr: the first rate, of lr
  // kWarmupStableDecay: lr after the warm-up for so many updates, then down for so many.
  int64_t stable_steps = 0;
  int64_t decay_steps = 0;
  Shape warmup_shape = Shape::kLinear;
  Shape decay_shape = Shape::kCosine;
  PlateauConfig plateau = {};
};

// By transformers' names.
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

// By transformers' names, in --lr_scheduler_kwargs.
inline constexpr std::array<std::pair<std::string_view, HfSchedule::Shape>, 3> kHfShapeNames = {{
    {"linear", HfSchedule::Shape::kLinear},
    {"cosine", HfSchedule::Shape::kCosine},
    {"1-sqrt", HfSchedule::Shape::kOneMinusSqrt},
}};

}  // namespace zeroth::configs
