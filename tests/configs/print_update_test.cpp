#include "configs/print.h"
#include "tests/configs/support.h"

namespace zeroth::configs {
namespace {

Config again(const Config& config) {
  return config_of(to_json(config));
}

}  // namespace

TEST_CASE("every optimizer loads back with its own values") {
  using Kind = OptimizerConfig::Kind;
  OptimizerConfig all{.lr = 2e-4, .betas = {0.8, 0.9}, .eps = 1e-7, .weight_decay = 0.1};
  all.momentum = 0.7;
  all.nesterov = true;
  all.lr_decay = 0.01;
  all.initial_accumulator_value = 0.2;
  for (const Kind kind : {Kind::kAdamW, Kind::kAdam, Kind::kLion, Kind::kSgd, Kind::kAdagrad}) {
    Config config;
    config.batch.train_batch_size = 2;
    config.optimizer = all;
    config.optimizer.kind = kind;
    const OptimizerConfig back = again(config).optimizer;
    CHECK(back.kind == kind);
    CHECK(back.lr == all.lr);
    CHECK(back.weight_decay == all.weight_decay);
    const bool has_betas = kind != Kind::kSgd && kind != Kind::kAdagrad;
    if (has_betas) CHECK(back.betas == all.betas);
    if (kind != Kind::kLion && kind != Kind::kSgd) CHECK(back.eps == all.eps);
    CHECK(back.momentum == (kind == Kind::kSgd ? 0.7 : 0));
    CHECK(back.nesterov == (kind == Kind::kSgd));
    CHECK(back.lr_decay == (kind == Kind::kAdagrad ? 0.01 : 0));
    CHECK(back.initial_accumulator_value == (kind == Kind::kAdagrad ? 0.2 : 0));
  }
}

TEST_CASE("one cycle and the range test load back") {
  Config config;
  config.batch.train_batch_size = 2;
  config.scheduler.kind = SchedulerConfig::Kind::kOneCycle;
  config.scheduler.one_cycle = {.min_lr = 1e-4,
                                .max_lr = 1e-3,
                                .first_step_size = 10,
                                .second_step_size = 20,
                                .first_stair_count = 2,
                                .second_stair_count = 3,
                                .decay_step_size = 4,
                                .decay_lr_rate = 0.5,
                                .cycle_momentum = false,
                                .min_momentum = 0.7,
                                .max_momentum = 0.95,
                                .decay_momentum_rate = 0.1};
  CHECK(optimizer_json(again(config).optimizer) == optimizer_json(config.optimizer));
  CHECK(scheduler_json(again(config).scheduler) == scheduler_json(config.scheduler));
  config.scheduler.kind = SchedulerConfig::Kind::kLrRangeTest;
  config.scheduler.range_test = {.min_lr = 1e-4, .step_size = 5, .step_rate = 2, .staircase = true};
  CHECK(scheduler_json(again(config).scheduler) == scheduler_json(config.scheduler));
}

TEST_CASE("a constant rate has no scheduler section") {
  CHECK(scheduler_json(SchedulerConfig()).is_null());
  CHECK(to_json(Config()).find("scheduler") == std::string::npos);
}

}  // namespace zeroth::configs
