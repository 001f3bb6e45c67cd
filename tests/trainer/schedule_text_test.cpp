#include "trainer/report/config_text.h"

#include <doctest/doctest.h>

namespace zeroth::trainer {
namespace {

using configs::HfSchedule;

std::string text(HfSchedule schedule) {
  schedule.total_steps = 100;
  return schedule_text(
      {.kind = configs::SchedulerConfig::Kind::kHuggingFace, .hf = std::move(schedule)});
}

}  // namespace

TEST_CASE("each of transformers' schedules is told by what shapes it") {
  using Type = HfSchedule::Type;
  CHECK(text({.type = Type::kConstantWithWarmup, .warmup_steps = 4}) ==
        "constant rate after a linear warm-up over 4 steps");
  CHECK(text({.type = Type::kLinear}) == "linear to 0 at step 100");
  CHECK(text({.type = Type::kCosine, .warmup_steps = 1}) ==
        "cosine to 0 at step 100 after a linear warm-up over 1 step");
  CHECK(text({.type = Type::kCosine, .num_cycles = 2}) == "cosine of 2 waves at step 100");
  CHECK(text({.type = Type::kCosineWithRestarts, .num_cycles = 3}) ==
        "cosine to 0, 3 times, at step 100");
  CHECK(text({.type = Type::kPolynomial, .power = 2}) ==
        "polynomial of power 2 to 1e-07 at step 100");
  CHECK(text({.type = Type::kInverseSqrt, .timescale = 20}) == "inverse square root, timescale 20");
  CHECK(text({.type = Type::kCosineWithMinLr, .min_lr_rate = 0.1}) ==
        "cosine to 0.1 of the rate at step 100");
  CHECK(text({.type = Type::kCosineWarmupWithMinLr, .min_lr_rate = 0.1}) ==
        "cosine to 0.1 of the rate at step 100");
  CHECK(text({.type = Type::kWarmupStableDecay,
              .warmup_steps = 5,
              .stable_steps = 70,
              .decay_steps = 25,
              .warmup_shape = HfSchedule::Shape::kCosine,
              .decay_shape = HfSchedule::Shape::kOneMinusSqrt}) ==
        "constant for 70 steps, then 1-sqrt to 0 of the rate over 25 steps after a cosine warm-up "
        "over 5 steps");
  CHECK(text({.type = Type::kReduceOnPlateau}) ==
        "times 0.1 after 11 evaluations in a row that are no better");
}

}  // namespace zeroth::trainer
