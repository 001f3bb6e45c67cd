#include <utility>

#include "configs/print.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

Json warmup_params(const SchedulerConfig& scheduler) {
  using Kind = SchedulerConfig::Kind;
  const bool linear = scheduler.warmup_type == SchedulerConfig::Warmup::kLinear;
  Json params = {{"warmup_num_steps", scheduler.warmup_num_steps},
                 {"warmup_type", linear ? "linear" : "log"}};
  if (scheduler.kind != Kind::kWarmupLr) params["total_num_steps"] = scheduler.total_num_steps;
  if (scheduler.kind == Kind::kWarmupCosineLr) {
    params["warmup_min_ratio"] = scheduler.warmup_min_ratio;
    params["cos_min_ratio"] = scheduler.cos_min_ratio;
  } else {
    params["warmup_min_lr"] = scheduler.warmup_min_lr;
    params["warmup_max_lr"] = scheduler.warmup_max_lr;
  }
  return params;
}

Json cycle_params(const OneCycleConfig& cycle) {
  return {{"cycle_min_lr", cycle.min_lr},
          {"cycle_max_lr", cycle.max_lr},
          {"cycle_first_step_size", cycle.first_step_size},
          {"cycle_second_step_size", cycle.second_step_size},
          {"cycle_first_stair_count", cycle.first_stair_count},
          {"cycle_second_stair_count", cycle.second_stair_count},
          {"decay_step_size", cycle.decay_step_size},
          {"decay_lr_rate", cycle.decay_lr_rate},
          {"cycle_momentum", cycle.cycle_momentum},
          {"cycle_min_mom", cycle.min_momentum},
          {"cycle_max_mom", cycle.max_momentum},
          {"decay_mom_rate", cycle.decay_momentum_rate}};
}

Json range_test_params(const LrRangeTestConfig& test) {
  return {{"lr_range_test_min_lr", test.min_lr},
          {"lr_range_test_step_size", test.step_size},
          {"lr_range_test_step_rate", test.step_rate},
          {"lr_range_test_staircase", test.staircase}};
}

}  // namespace

Json optimizer_json(const OptimizerConfig& optimizer) {
  using Kind = OptimizerConfig::Kind;
  const auto of = [&](const char* type, const Json& own) {
    Json params = {{"lr", optimizer.lr}};
    params.update(own);
    params["weight_decay"] = optimizer.weight_decay;
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  switch (optimizer.kind) {
    case Kind::kAdamW:
    case Kind::kAdam: {
      const bool decoupled = optimizer.kind == Kind::kAdamW;
      return of(decoupled ? "AdamW" : "Adam",
                {{"betas", optimizer.betas}, {"eps", optimizer.eps}, {"adam_w_mode", decoupled}});
    }
    case Kind::kLion:
      return of("Lion", {{"betas", optimizer.betas}});
    case Kind::kSgd:
      return of("SGD", {{"momentum", optimizer.momentum},
                        {"dampening", optimizer.dampening},
                        {"nesterov", optimizer.nesterov}});
    case Kind::kAdagrad:
      return of("Adagrad", {{"lr_decay", optimizer.lr_decay},
                            {"initial_accumulator_value", optimizer.initial_accumulator_value},
                            {"eps", optimizer.eps}});
  }
  return {};
}

Json scheduler_json(const SchedulerConfig& scheduler) {
  using Kind = SchedulerConfig::Kind;
  const auto of = [](const char* type, Json params) {
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  switch (scheduler.kind) {
    case Kind::kConstant:
    case Kind::kLinear:
    case Kind::kCosine:
      break;  // no type of a file
    case Kind::kWarmupLr:
      return of("WarmupLR", warmup_params(scheduler));
    case Kind::kWarmupDecayLr:
      return of("WarmupDecayLR", warmup_params(scheduler));
    case Kind::kWarmupCosineLr:
      return of("WarmupCosineLR", warmup_params(scheduler));
    case Kind::kOneCycle:
      return of("OneCycle", cycle_params(scheduler.one_cycle));
    case Kind::kLrRangeTest:
      return of("LRRangeTest", range_test_params(scheduler.range_test));
  }
  return {};
}

}  // namespace zeroth::configs
