#include "configs/context.h"

namespace zeroth::configs {
namespace {

SchedulerConfig flag_warmup(const Context& context, double lr) {
  SchedulerConfig scheduler;
  const int64_t steps = context.flags.warmup_steps.value_or(0);
  if (steps == 0) return scheduler;
  scheduler.kind = SchedulerConfig::Kind::kWarmupLr;
  scheduler.warmup_type = SchedulerConfig::Warmup::kLinear;
  scheduler.warmup_max_lr = lr;
  scheduler.warmup_num_steps = steps;
  return scheduler;
}

std::optional<SchedulerConfig::Kind> scheduler_kind(Context& context) {
  using Kind = SchedulerConfig::Kind;
  const Names known = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  const auto type =
      known_type(context, "scheduler.type", known, {"OneCycle", "LRRangeTest"}, false);
  if (!type) return std::nullopt;
  if (!context.keys.has("scheduler.params")) {
    context.complain("scheduler.params: missing; {} needs an object here", *type);
  }
  if (*type == "WarmupLR") return Kind::kWarmupLr;
  return *type == "WarmupDecayLR" ? Kind::kWarmupDecayLr : Kind::kWarmupCosineLr;
}

// A schedule knows no warm-up of 0 steps; 1 is its shortest, as DeepSpeed takes any number below 2.
void fill_warmup(Context& context, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.warmup_num_steps";
  const auto steps = context.pick(path, context.flags.warmup_steps, "--warmup-steps");
  if (steps > 0) {
    scheduler.warmup_num_steps = *steps;
  } else if (steps == 0 || context.keys.is_auto(path)) {
    scheduler.warmup_num_steps = 1;
    context.note("{} is 1, the shortest warm-up there is: --warmup-steps {}", path,
                 steps ? "is 0" : "is not given");
  }
  if (context.keys.get<std::string>("scheduler.params.warmup_type") == "linear") {
    scheduler.warmup_type = SchedulerConfig::Warmup::kLinear;
  }
}

void fill_peak(Context& context, const Config& config, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.warmup_max_lr";
  const bool to_optimizer =
      scheduler.kind == SchedulerConfig::Kind::kWarmupLr || context.keys.is_auto(path);
  if (const auto peak = context.pick(path, context.flags.lr, "--lr")) {
    scheduler.warmup_max_lr = *peak;
  } else if (to_optimizer) {
    scheduler.warmup_max_lr = config.optimizer.lr;
  }
  if (scheduler.warmup_max_lr != config.optimizer.lr) {
    context.note("the rate follows the scheduler up to {}; the optimizer's lr {} is not used",
                 scheduler.warmup_max_lr, config.optimizer.lr);
  }
}

void fill_total(Context& context, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.total_num_steps";
  const auto& run = context.facts.total_steps;
  if (const auto total = context.keys.get<int64_t>(path)) {
    scheduler.total_num_steps = *total;
    if (run && *run != *total) {
      context.note("{} is {}, but the run has {} steps", path, *total, *run);
    }
  } else if (context.keys.is_auto(path)) {
    scheduler.total_num_steps = run.value_or(0);
    if (context.facts_known && !run) {
      context.complain("{}: \"auto\" needs the length of the run: give --steps or a number", path);
    }
  }
}

}  // namespace

void fill_scheduler(Context& context, Config& config) {
  if (context.keys.is_bad("scheduler")) return;
  if (!context.keys.has("scheduler")) {
    config.scheduler = flag_warmup(context, config.optimizer.lr);
    return;
  }
  const auto kind = scheduler_kind(context);
  if (!kind) return;
  SchedulerConfig& scheduler = config.scheduler;
  scheduler.kind = *kind;
  fill_warmup(context, scheduler);
  if (*kind != SchedulerConfig::Kind::kWarmupLr) fill_total(context, scheduler);
  if (*kind == SchedulerConfig::Kind::kWarmupCosineLr) {
    const auto read = [&](const std::string& name, double& into) {
      into = context.keys.get<double>("scheduler.params." + name).value_or(into);
    };
    read("warmup_min_ratio", scheduler.warmup_min_ratio);
    read("cos_min_ratio", scheduler.cos_min_ratio);
    return;
  }
  scheduler.warmup_min_lr = context.keys.get<double>("scheduler.params.warmup_min_lr").value_or(0);
  fill_peak(context, config, scheduler);
}

}  // namespace zeroth::configs
