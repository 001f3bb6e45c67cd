#include "tests/configs/support.h"

namespace zeroth::configs::scheduler_test {
namespace {

using Kind = SchedulerConfig::Kind;
using Warmup = SchedulerConfig::Warmup;

std::string describe_schedule(const std::string& type, const std::string& params) {
  return R"({"scheduler": {"type": ")" + type + R"(", "params": )" + params + "}}";
}

}  // namespace

TEST_CASE("without a section the rate is constant, or warms up linearly with --warmup-steps") {
  CHECK(config_of("{}").scheduler.kind == Kind::kConstant);
  FlagValues flags;
  flags.warmup_steps = 0;
  CHECK(config_of("{}", flags).scheduler.kind == Kind::kConstant);
  flags.warmup_steps = 10;
  flags.lr = 3e-4;
  const SchedulerConfig scheduler = config_of("{}", flags).scheduler;
  CHECK(scheduler.kind == Kind::kWarmupLr);
  CHECK(scheduler.warmup_type == Warmup::kLinear);
  CHECK(scheduler.warmup_num_steps == 10);
  CHECK(scheduler.warmup_min_lr == 0);
  CHECK(scheduler.warmup_max_lr == 3e-4);
}

TEST_CASE("a warm-up of a shape that DeepSpeed does not know is log, as there") {
  for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}) {
    for (const char* shape : {"cosine", "Linear"}) {
      const Resolved resolved = resolve_text(describe_schedule(
          type, fmt::format(R"({{"warmup_type": "{}"{}}})", shape,
                            type == std::string("WarmupLR") ? "" : R"(, "total_num_steps": 100)")));
      CHECK(resolved.config.scheduler.warmup_type == Warmup::kLog);
      CHECK(has_warning(resolved,
                        fmt::format("scheduler.params.warmup_type: \"{}\" is unknown and treated "
                                    "as \"log\", as in DeepSpeed; known: \"log\" and \"linear\"",
                                    shape)));
    }
  }
}

TEST_CASE("defaults are those of DeepSpeed's schedules") {
  const SchedulerConfig warmup = config_of(describe_schedule("WarmupLR", "{}")).scheduler;
  CHECK(warmup.kind == Kind::kWarmupLr);
  CHECK(warmup.warmup_max_lr == 5e-5);
  CHECK(warmup.warmup_num_steps == 1000);
  CHECK(warmup.warmup_type == Warmup::kLog);
  const SchedulerConfig decay =
      config_of(describe_schedule("WarmupDecayLR", R"({"total_num_steps": 50})")).scheduler;
  CHECK(decay.kind == Kind::kWarmupDecayLr);
  CHECK(decay.warmup_max_lr == 1e-3);
  CHECK(decay.total_num_steps == 50);
  const SchedulerConfig cosine =
      config_of(describe_schedule("WarmupCosineLR", R"({"total_num_steps": 50})")).scheduler;
  CHECK(cosine.kind == Kind::kWarmupCosineLr);
  CHECK(cosine.warmup_min_ratio == 0);
  CHECK(cosine.cos_min_ratio == 1e-4);
}

TEST_CASE("auto comes from the flags and the run") {
  FlagValues flags;
  flags.warmup_steps = 7;
  flags.lr = 2e-4;
  const SchedulerConfig scheduler =
      config_of(
          describe_schedule("WarmupDecayLR", R"({"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                    "warmup_num_steps": "auto", "total_num_steps": "auto"})"),
          flags)
          .scheduler;
  CHECK(scheduler.warmup_min_lr == 0);
  CHECK(scheduler.warmup_max_lr == 2e-4);
  CHECK(scheduler.warmup_num_steps == 7);
  CHECK(scheduler.total_num_steps == 100);
}

TEST_CASE("auto that nothing resolves is an error that says what would") {
  CHECK(error_of(describe_schedule("WarmupCosineLR", R"({"total_num_steps": "auto"})"), {},
                 RunFacts{}) ==
        "test.json: scheduler.params.total_num_steps: \"auto\" needs the length of the run: give "
        "--steps or a number");
}

TEST_CASE("schedules are named exactly") {
  CHECK(error_of(describe_schedule("warmuplr", "{}")) ==
        "test.json: scheduler.type: unknown type \"warmuplr\"; did you mean WarmupLR?");
  CHECK(error_of(R"({"scheduler": {}})").find("scheduler.type: missing") != std::string::npos);
}

TEST_CASE("one cycle has DeepSpeed's defaults, and its second half those of the first") {
  const OneCycleConfig cycle = config_of(describe_schedule("OneCycle", R"({"cycle_min_lr": 1e-4,
      "cycle_max_lr": 1e-3, "cycle_first_step_size": 30, "cycle_first_stair_count": 3})"))
                                   .scheduler.one_cycle;
  CHECK(cycle.min_lr == 1e-4);
  CHECK(cycle.max_lr == 1e-3);
  CHECK(cycle.second_step_size == 30);
  CHECK(cycle.second_stair_count == 3);
  CHECK(cycle.decay_step_size == 0);
  CHECK(cycle.cycle_momentum);
  CHECK(cycle.min_momentum == 0.8);
  CHECK(cycle.max_momentum == 0.9);
}

TEST_CASE("one cycle needs its two rates, positive sizes, and betas for its momentum") {
  CHECK(error_of(describe_schedule("OneCycle", "{}")) ==
        "test.json: 2 errors\n"
        "  scheduler.params.cycle_min_lr: missing; OneCycle needs a number\n"
        "  scheduler.params.cycle_max_lr: missing; OneCycle needs a number");
  CHECK(error_of(describe_schedule("OneCycle", R"({"cycle_min_lr": 0, "cycle_max_lr": 1,
                                         "cycle_first_step_size": 0})")) ==
        "test.json: scheduler.params.cycle_first_step_size: expected a number > 0, found 0");
  const Resolved sgd = resolve_text(R"({"optimizer": {"type": "SGD"}, "scheduler":
      {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1}}})");
  CHECK_FALSE(sgd.config.scheduler.one_cycle.cycle_momentum);
  CHECK(has_warning(sgd, "scheduler.params.cycle_momentum is off: the optimizer has no betas"));
}

TEST_CASE("a warm-up flag beside a schedule without warm-up is an error") {
  FlagValues flags;
  flags.warmup_steps = 3;
  CHECK(error_of(describe_schedule("LRRangeTest", "{}"), flags) ==
        "test.json: --warmup-steps: LRRangeTest has no warm-up");
}

TEST_CASE("the range test has DeepSpeed's defaults, and steps of at least one") {
  const LrRangeTestConfig test =
      config_of(describe_schedule("LRRangeTest", "{}")).scheduler.range_test;
  CHECK(test.min_lr == 1e-3);
  CHECK(test.step_size == 2000);
  CHECK(test.step_rate == 1.0);
  CHECK_FALSE(test.staircase);
  for (const char* size : {"0", "-3", "1.5"}) {
    CHECK(error_of(describe_schedule("LRRangeTest",
                                     fmt::format(R"({{"lr_range_test_step_size": {}}})", size)))
              .find("scheduler.params.lr_range_test_step_size: expected an integer") !=
          std::string::npos);
  }
}

TEST_CASE("step counts that are no whole numbers above 0 are refused") {
  for (const char* count : {"0", "-1", "2.5", "true", "\"many\""}) {
    CAPTURE(count);
    CHECK(
        error_of(describe_schedule("WarmupLR", fmt::format(R"({{"warmup_num_steps": {}}})", count)))
            .find("scheduler.params.warmup_num_steps: expected an integer") != std::string::npos);
    CHECK(error_of(describe_schedule("WarmupDecayLR",
                                     fmt::format(R"({{"total_num_steps": {}}})", count)))
              .find("scheduler.params.total_num_steps: expected an integer") != std::string::npos);
  }
}

TEST_CASE("--warmup-ratio is a part of the run, rounded up") {
  FlagValues flags;
  flags.warmup_ratio = 0.031;
  CHECK(config_of("{}", flags).scheduler.warmup_num_steps == 4);  // of 100 steps
  const Resolved part =
      resolve_text(describe_schedule("WarmupLR", R"({"warmup_num_steps": "auto"})"), flags);
  CHECK(part.config.scheduler.warmup_num_steps == 4);
  CHECK(part.origins.at("scheduler.params.warmup_num_steps") == "auto: --warmup-ratio");
  CHECK(error_of(describe_schedule("WarmupLR", R"({"warmup_num_steps": 5})"), flags)
            .find("5 in the file, but --warmup-ratio comes to 4") != std::string::npos);
  CHECK(error_of("{}", flags, RunFacts{}) ==
        "test.json: --warmup-ratio 0.031: needs the length of the run");
  flags.warmup_steps = 2;
  CHECK(error_of("{}", flags) ==
        "test.json: --warmup-ratio 0.031 and --warmup-steps 2: give one of them");
}

TEST_CASE("a schedule without params is an error") {
  CHECK(error_of(R"({"scheduler": {"type": "WarmupLR"}})") ==
        "test.json: scheduler.params: missing; WarmupLR needs an object here");
}

TEST_CASE("a peak that differs from the optimizer's rate is said") {
  const Resolved resolved =
      resolve_text(describe_schedule("WarmupLR", R"({"warmup_max_lr": 0.01})"));
  CHECK(resolved.config.scheduler.warmup_max_lr == 0.01);
  CHECK(has_note(resolved, "up to 0.01; the optimizer's lr 5e-05 is not used"));
  FlagValues flags;
  flags.lr = 1e-4;
  CHECK(error_of(describe_schedule("WarmupLR", R"({"warmup_max_lr": 0.01})"), flags)
            .find("scheduler.params.warmup_max_lr: 0.01 in the file, but --lr 0.0001") !=
        std::string::npos);
}

TEST_CASE("an automatic warm-up without --warmup-steps, or with 0, is the shortest, and said") {
  const std::string text = describe_schedule("WarmupDecayLR", R"({"warmup_min_lr": "auto",
      "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"})");
  const Resolved absent = resolve_text(text);
  CHECK(absent.config.scheduler.warmup_num_steps == 1);
  CHECK(has_note(absent,
                 "scheduler.params.warmup_num_steps is 1, the shortest warm-up there is: "
                 "--warmup-steps is not given"));
  FlagValues flags;
  flags.warmup_steps = 0;
  for (const std::string& either : {text, describe_schedule("WarmupLR", "{}")}) {
    const Resolved zero = resolve_text(either, flags);
    CHECK(zero.config.scheduler.warmup_num_steps == 1);
    CHECK(has_note(zero, "the shortest warm-up there is: --warmup-steps 0"));
  }
}

TEST_CASE("a warm-up of 0 steps in the file is refused, as by DeepSpeed") {
  CHECK(error_of(describe_schedule("WarmupLR", R"({"warmup_num_steps": 0})")) ==
        "test.json: scheduler.params.warmup_num_steps: expected an integer >= 1, found 0");
}

TEST_CASE("a total that is not the run's is said") {
  CHECK(has_warning(resolve_text(describe_schedule("WarmupDecayLR", R"({"total_num_steps": 30})")),
                    "scheduler.params.total_num_steps is 30, but the run has 100 steps"));
}

}  // namespace zeroth::configs::scheduler_test
