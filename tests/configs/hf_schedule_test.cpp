// Schedules that flags ask for by transformers' names.
#include "configs/hf_schedule.h"

#include "tests/configs/support.h"

namespace zeroth::configs::hf_schedule_test {
namespace {

using Kind = SchedulerConfig::Kind;
using Type = HfSchedule::Type;
using Shape = HfSchedule::Shape;

FlagValues asks_for(Type type, const std::string& kwargs = "") {
  FlagValues flags;
  flags.schedule = type;
  flags.schedule_kwargs = kwargs;
  return flags;
}

HfSchedule schedule_of(const FlagValues& flags) {
  const SchedulerConfig scheduler = config_of("{}", flags).scheduler;
  CHECK(scheduler.kind == Kind::kHuggingFace);
  return scheduler.hf;
}

// Of the arguments of one type.
std::string refusal(Type type, const std::string& kwargs) {
  return error_of("{}", asks_for(type, kwargs));
}

std::string describe_schedule(const std::string& type, const std::string& params) {
  return R"({"scheduler": {"type": ")" + type + R"(", "params": )" + params + "}}";
}

std::string described(HfSchedule schedule) {
  schedule.total_steps = 100;
  return schedule_text({.kind = Kind::kHuggingFace, .hf = std::move(schedule)});
}

}  // namespace

TEST_CASE("names stand in the order of the types") {
  for (size_t i = 0; i < kHfScheduleNames.size(); ++i) {
    CHECK(static_cast<size_t>(kHfScheduleNames[i].second) == i);
  }
  for (size_t i = 0; i < kHfShapeNames.size(); ++i) {
    CHECK(static_cast<size_t>(kHfShapeNames[i].second) == i);
  }
  CHECK(to_string(Type::kWarmupStableDecay) == "warmup_stable_decay");
}

TEST_CASE("a schedule of transformers takes warm-up and length from the flags and the run") {
  FlagValues flags = asks_for(Type::kLinear);
  CHECK(schedule_of(flags).warmup_steps == 0);
  CHECK(schedule_of(flags).total_steps == 100);
  flags = asks_for(Type::kCosine);
  flags.warmup_ratio = 0.1;
  CHECK(schedule_of(flags).warmup_steps == 10);
  CHECK(schedule_of(flags).num_cycles == 0.5);
  CHECK(schedule_of(asks_for(Type::kCosineWithRestarts)).num_cycles == 1);
  CHECK(schedule_of(asks_for(Type::kInverseSqrt)).timescale == 10'000);
  flags = asks_for(Type::kInverseSqrt);
  flags.warmup_steps = 20;
  CHECK(schedule_of(flags).timescale == 20);
}

TEST_CASE("a schedule that ends with the run needs its length") {
  const RunFacts unknown{.hidden_size = 64};
  CHECK(error_of("{}", asks_for(Type::kPolynomial), unknown) ==
        "test.json: --lr_scheduler_type polynomial: needs the length of the run: give --steps");
  CHECK(error_of("{}", asks_for(Type::kConstantWithWarmup), unknown).empty());
  CHECK(error_of("{}", asks_for(Type::kInverseSqrt), unknown).empty());
  const std::string all = R"({"num_decay_steps": 5, "num_stable_steps": 9})";
  CHECK(error_of("{}", asks_for(Type::kWarmupStableDecay, all), unknown).empty());
}

TEST_CASE("arguments of a schedule are those of transformers' function") {
  const HfSchedule stable = schedule_of(asks_for(
      Type::kWarmupStableDecay,
      R"({"num_decay_steps": 30, "warmup_type": "cosine", "decay_type": "1-sqrt", "min_lr_ratio": 0.1})"));
  CHECK(stable.decay_steps == 30);
  CHECK(stable.stable_steps == 70);
  CHECK(stable.warmup_shape == Shape::kCosine);
  CHECK(stable.decay_shape == Shape::kOneMinusSqrt);
  CHECK(stable.min_lr_rate == 0.1);
  const HfSchedule min_schedule = schedule_of(asks_for(
      Type::kCosineWarmupWithMinLr, R"({"min_lr": 1e-5, "warmup_lr_rate": 0.2, "num_cycles": 1})"));
  CHECK(min_schedule.min_lr_rate == 1e-5 / 5e-5);
  CHECK(min_schedule.warmup_lr_rate == 0.2);
  CHECK(min_schedule.num_cycles == 1);
  const PlateauConfig plateau =
      schedule_of(asks_for(Type::kReduceOnPlateau,
                           R"({"mode": "max", "threshold_mode": "abs", "patience": 2, "factor": 0.5,
                               "threshold": 0, "cooldown": 1, "min_lr": 1e-6, "eps": 0})"))
          .plateau;
  CHECK(plateau.greater_is_better);
  CHECK_FALSE(plateau.relative);
  CHECK(plateau.patience == 2);
  CHECK(plateau.factor == 0.5);
  CHECK(plateau.cooldown == 1);
  CHECK(plateau.min_lr == 1e-6);
  CHECK(schedule_of(asks_for(Type::kCosine, R"({"num_cycles": null})")).num_cycles == 0.5);
}

TEST_CASE("arguments that a schedule does not take, or not so, are refused by name") {
  CHECK(refusal(Type::kCosine, R"({"num_cycle": 2})") ==
        "test.json: --lr_scheduler_kwargs: cosine does not accept num_cycle; accepted: num_cycles");
  CHECK(refusal(Type::kLinear, R"({"power": 2})") ==
        "test.json: --lr_scheduler_kwargs: linear does not accept power; accepted: none");
  CHECK(refusal(Type::kCosine, R"({"num_cycles": "two"})") ==
        "test.json: --lr_scheduler_kwargs: num_cycles must be a number >= 0, found \"two\"");
  CHECK(refusal(Type::kInverseSqrt, R"({"timescale": 0})") ==
        "test.json: --lr_scheduler_kwargs: timescale must be a whole number >= 1, found 0");
  CHECK(refusal(Type::kWarmupStableDecay, R"({"num_decay_steps": 2, "decay_type": "sqrt"})") ==
        "test.json: --lr_scheduler_kwargs: decay_type must be one of linear, cosine, 1-sqrt, found "
        "\"sqrt\"");
  CHECK(refusal(Type::kWarmupStableDecay, "").find("needs num_decay_steps") != std::string::npos);
  CHECK(refusal(Type::kCosineWithMinLr, "").find("needs min_lr or min_lr_rate, one of the two") !=
        std::string::npos);
  CHECK(refusal(Type::kCosineWithMinLr, R"({"min_lr": 0, "min_lr_rate": 0})")
            .find("needs min_lr or min_lr_rate, one of the two") != std::string::npos);
  CHECK(refusal(Type::kPolynomial, R"({"lr_end": 1e-3})") ==
        "test.json: --lr_scheduler_kwargs: lr_end 0.001 must be below the rate, 5e-05");
  CHECK(refusal(Type::kReduceOnPlateau, R"({"factor": 1})") ==
        "test.json: --lr_scheduler_kwargs: factor must be below 1, found 1");
  CHECK(refusal(Type::kCosine, "[2]") ==
        "test.json: --lr_scheduler_kwargs [2]: expected an object, {\"num_cycles\": 2}");
  CHECK(refusal(Type::kCosine, "{2}").find("--lr_scheduler_kwargs:1:2") != std::string::npos);
  FlagValues alone;
  alone.schedule_kwargs = "{}";
  CHECK(error_of("{}", alone) == "test.json: --lr_scheduler_kwargs needs --lr_scheduler_type");
}

TEST_CASE("a constant rate takes no arguments and does not warm up, a note says") {
  FlagValues flags = asks_for(Type::kConstant, R"({"num_cycles": 2})");
  flags.warmup_steps = 4;
  const Resolved resolved = resolve_text("{}", flags);
  CHECK(resolved.config.scheduler.kind == Kind::kConstant);
  CHECK(has_note(
      resolved, "--warmup-steps: no effect: constant does not warm up; constant_with_warmup does"));
  CHECK(has_note(resolved, "--lr_scheduler_kwargs: no effect: constant accepts no arguments"));
  flags = asks_for(Type::kReduceOnPlateau);
  flags.warmup_ratio = 0.1;
  CHECK(has_note(resolve_text("{}", flags),
                 "--warmup-ratio: no effect: reduce_lr_on_plateau does not warm up"));
}

TEST_CASE("no rate follows evaluations beside an optimizer of the file") {
  CHECK(error_of(R"({"optimizer": {"type": "AdamW"}})", asks_for(Type::kReduceOnPlateau))
            .find("--lr_scheduler_type reduce_lr_on_plateau: not supported with an \"optimizer\" "
                  "in the file") != std::string::npos);
}

TEST_CASE("beside a scheduler of the file our own flag has to mean the same shape") {
  const FlagValues linear = asks_for(Type::kLinear);
  CHECK(
      error_of(describe_schedule("WarmupDecayLR", R"({"total_num_steps": 100})"), linear).empty());
  CHECK(
      error_of(describe_schedule("WarmupLR", "{}"), linear) ==
      "test.json: scheduler.type: WarmupLR in the file, but --lr_scheduler_type linear; leave one "
      "out");
  CHECK(error_of(describe_schedule("WarmupLR", "{}"), asks_for(Type::kPolynomial))
            .find("WarmupLR in the file, but --lr_scheduler_type polynomial") != std::string::npos);
  CHECK(error_of(describe_schedule("WarmupLR", "{}"), asks_for(Type::kConstant, "{}")) ==
        "test.json: --lr_scheduler_kwargs: the file's WarmupLR has its own params: leave it out");
}

TEST_CASE("under Trainer a scheduler of the file is in force, whatever the flags say") {
  FlagValues flags = asks_for(Type::kPolynomial, R"({"power": 2})");
  flags.for_trainer = true;
  const Resolved resolved = resolve_text(describe_schedule("WarmupLR", "{}"), flags);
  CHECK(resolved.config.scheduler.kind == Kind::kWarmupLr);
  CHECK(has_warning(resolved,
                    "--lr_scheduler_type polynomial: no effect: the schedule is the file's "
                    "WarmupLR, as under Hugging Face's Trainer"));
  CHECK(has_warning(resolved, "--lr_scheduler_kwargs: no effect: the schedule is the file's"));
  flags = {};
  flags.for_trainer = true;
  flags.warmup_steps = 3;
  CHECK(has_warning(resolve_text(describe_schedule("LRRangeTest", "{}"), flags),
                    "--warmup-steps: no effect: the schedule is the file's LRRangeTest"));
}

TEST_CASE("each of transformers' schedules is described by what shapes it") {
  CHECK(described({.type = Type::kConstantWithWarmup, .warmup_steps = 4}) ==
        "constant rate after a linear warm-up over 4 steps");
  CHECK(described({.type = Type::kLinear}) == "linear to 0 at step 100");
  CHECK(described({.type = Type::kCosine, .warmup_steps = 1}) ==
        "cosine to 0 at step 100 after a linear warm-up over 1 step");
  CHECK(described({.type = Type::kCosine, .num_cycles = 2}) == "cosine of 2 waves at step 100");
  CHECK(described({.type = Type::kCosineWithRestarts, .num_cycles = 3}) ==
        "cosine to 0, 3 times, at step 100");
  CHECK(described({.type = Type::kPolynomial, .power = 2}) ==
        "polynomial of power 2 to 1e-07 at step 100");
  CHECK(described({.type = Type::kInverseSqrt, .timescale = 20}) ==
        "inverse square root, timescale 20");
  CHECK(described({.type = Type::kCosineWithMinLr, .min_lr_rate = 0.1}) ==
        "cosine to 0.1 of the rate at step 100");
  CHECK(described({.type = Type::kCosineWarmupWithMinLr, .min_lr_rate = 0.1}) ==
        "cosine to 0.1 of the rate at step 100");
  CHECK(described({.type = Type::kWarmupStableDecay,
                   .warmup_steps = 5,
                   .stable_steps = 70,
                   .decay_steps = 25,
                   .warmup_shape = Shape::kCosine,
                   .decay_shape = Shape::kOneMinusSqrt}) ==
        "constant for 70 steps, then 1-sqrt to 0 of the rate over 25 steps after a cosine warm-up "
        "over 5 steps");
  CHECK(described({.type = Type::kReduceOnPlateau}) ==
        "times 0.1 after 11 evaluations in a row that are no better");
}

}  // namespace zeroth::configs::hf_schedule_test
