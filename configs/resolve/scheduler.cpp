#include <algorithm>
#include <cmath>

#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Kind = SchedulerConfig::Kind;

struct SchedulerType {
  std::string_view name;
  Kind kind;
  std::string_view takes, required;  // keys of scheduler.params
};

// Types of DeepSpeed's lr_schedules.py.
constexpr SchedulerType kTypes[] = {
    {"WarmupLR", Kind::kWarmupLr, "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type", ""},
    {"WarmupDecayLR", Kind::kWarmupDecayLr,
     "total_num_steps warmup_min_lr warmup_max_lr warmup_num_steps warmup_type", "total_num_steps"},
    {"WarmupCosineLR", Kind::kWarmupCosineLr,
     "total_num_steps warmup_min_ratio warmup_num_steps warmup_type cos_min_ratio",
     "total_num_steps"},
    {"OneCycle", Kind::kOneCycle,
     "cycle_min_lr cycle_max_lr cycle_first_step_size cycle_second_step_size "
     "cycle_first_stair_count cycle_second_stair_count decay_step_size decay_lr_rate "
     "cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate",
     "cycle_min_lr cycle_max_lr"},
    {"LRRangeTest", Kind::kLrRangeTest,
     "lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate "
     "lr_range_test_staircase",
     ""},
};

std::string param(std::string_view name) {
  return fmt::format("scheduler.params.{}", name);
}

const SchedulerType* type_of(Context& context) {
  TypeNames names;
  for (const SchedulerType& type : kTypes) names.push_back(type.name);
  const auto name = parse_type(context, "scheduler.type", names, {}, false);
  if (!name) return nullptr;
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const SchedulerType& known) { return known.name == *name; });
  if (!context.keys.has("scheduler.params")) {
    context.add_error("scheduler.params: missing; {} needs an object here", type->name);
    return type;
  }
  check_params(context, "scheduler", type->name, type->takes);
  for (const std::string_view required : split_values(type->required, ' ')) {
    if (!context.keys.has(param(required))) {
      context.add_error("{}: missing; {} needs {}", param(required), type->name,
                        required == "total_num_steps"
                            ? "a number or \"auto\" (the steps of the run)"
                            : "a number");
    }
  }
  return type;
}

// Returns the warm-up steps that the flags request. A ratio of the run is rounded up, as in Hugging
// Face's Trainer.
std::optional<int64_t> flag_steps(Context& context) {
  const FlagValues& flags = context.flags;
  if (!flags.warmup_ratio) return flags.warmup_steps;
  if (flags.warmup_steps) {
    context.add_error("--warmup-ratio {} and --warmup-steps {}: give one of them",
                      *flags.warmup_ratio, *flags.warmup_steps);
    return flags.warmup_steps;
  }
  if (const auto& run = context.facts.total_steps) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(*run) * *flags.warmup_ratio));
  }
  if (context.facts_known) {
    context.add_error("--warmup-ratio {}: needs the length of the run", *flags.warmup_ratio);
  }
  return std::nullopt;
}

// Returns the schedule without a section. Our own flags have DeepSpeed's warm-up and then a
// constant rate if they name no schedule.
SchedulerConfig from_flags(Context& context, double lr) {
  const FlagValues& flags = context.flags;
  SchedulerConfig scheduler;
  const int64_t steps = flag_steps(context).value_or(0);
  const auto schedule = flags.schedule ? flags.schedule : defaults_for(flags).schedule;
  if (schedule) {
    scheduler.hf = resolve_hf_schedule(context, *schedule, steps, lr);
    const bool constant = *schedule == HfSchedule::Type::kConstant;
    scheduler.kind = constant ? Kind::kConstant : Kind::kHuggingFace;
    return scheduler;
  }
  if (!flags.schedule_kwargs.empty()) {
    context.add_error("--lr_scheduler_kwargs needs --lr_scheduler_type");
  }
  if (steps > 0) {
    scheduler.kind = Kind::kWarmupLr;
    scheduler.warmup_type = SchedulerConfig::Warmup::kLinear;
    scheduler.warmup_max_lr = lr;
    scheduler.warmup_num_steps = steps;
  }
  return scheduler;
}

// Returns the file's schedule of the same shape, or nullopt if a file has none.
std::optional<Kind> same_shape(HfSchedule::Type type) {
  switch (type) {
    case HfSchedule::Type::kConstant:
    case HfSchedule::Type::kConstantWithWarmup:
      return Kind::kWarmupLr;
    case HfSchedule::Type::kLinear:
      return Kind::kWarmupDecayLr;
    case HfSchedule::Type::kCosine:
      return Kind::kWarmupCosineLr;
    default:
      return std::nullopt;
  }
}

// Compares the flags with the section. Trainer ignores its flags beside a section, except for the
// warm-up steps of an "auto"; our flags must have the same shape.
void compare_flags(Context& context, const SchedulerType& type) {
  const FlagValues& flags = context.flags;
  const auto report = [&](const std::string& flag, const std::string& otherwise) {
    if (!flags.for_trainer) return context.add_error("{}", otherwise);
    warn(context.notes, flag.substr(0, flag.find(' ')),
         "{}: no effect: the schedule is the file's {}, as under Hugging Face's Trainer", flag,
         type.name);
  };
  const bool warms_up = type.takes.find("warmup_num_steps") != std::string_view::npos;
  if (!warms_up && (flags.warmup_steps || flags.warmup_ratio)) {
    const std::string flag = flags.warmup_steps ? "--warmup-steps" : "--warmup-ratio";
    report(flag, fmt::format("{}: {} has no warm-up", flag, type.name));
  }
  if (flags.schedule && same_shape(*flags.schedule) != type.kind) {
    const std::string flag = fmt::format("--lr_scheduler_type {}", to_string(*flags.schedule));
    report(flag,
           fmt::format("scheduler.type: {} in the file, but {}; leave one out", type.name, flag));
  }
  if (!flags.schedule_kwargs.empty()) {
    report("--lr_scheduler_kwargs",
           fmt::format("--lr_scheduler_kwargs: the file's {} has its own params: leave it out",
                       type.name));
  }
}

void fill_total(Context& context, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.total_num_steps";
  const auto& run = context.facts.total_steps;
  if (const auto total = context.keys.get<int64_t>(path)) {
    scheduler.total_num_steps = *total;
    if (run && *run != *total) {
      warn(context.notes, path, "{} is {}, but the run has {} steps", path, *total, *run);
    }
  } else if (context.keys.is_auto(path)) {
    scheduler.total_num_steps = run.value_or(0);
    if (context.facts_known && !run) {
      context.add_error("{}: \"auto\" needs the length of the run: give --steps or a number", path);
    }
  }
}

// Reads the warm-up's shape. DeepSpeed treats unknown names as log, "cosine" and "Linear" among
// them.
void fill_shape(Context& context, SchedulerConfig& scheduler) {
  const std::string path = param("warmup_type");
  const std::string shape = context.keys.get<std::string>(path).value_or("log");
  if (shape == "linear") {
    scheduler.warmup_type = SchedulerConfig::Warmup::kLinear;
  } else if (shape != "log") {
    warn(context.notes, path,
         "{}: {} is unknown and treated as \"log\", as in DeepSpeed; known: \"log\" and \"linear\"",
         path, Context::shown(shape));
  }
}

// Reads the warm-up steps. The shortest warm-up has 1 step, since DeepSpeed treats any number below
// 2 like that.
void fill_warmup(Context& context, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.warmup_num_steps";
  const char* flag = context.flags.warmup_ratio ? "--warmup-ratio comes to" : "--warmup-steps";
  const auto steps = context.resolve_value(path, flag_steps(context), flag);
  const auto origin = context.origins.find(path);
  if (steps && origin != context.origins.end() && context.flags.warmup_ratio) {
    origin->second = "--warmup-ratio";
  }
  if (steps > 0) {
    scheduler.warmup_num_steps = *steps;
  } else if (steps == 0 || (context.keys.is_auto(path) && context.facts_known)) {
    scheduler.warmup_num_steps = 1;
    context.origins[path] = "the shortest";
    note(context.notes, path, "{} is 1, the shortest warm-up there is: {}{}", path, flag,
         steps ? " 0" : " is not given");
  }
  fill_shape(context, scheduler);
  if (scheduler.kind != Kind::kWarmupLr) fill_total(context, scheduler);
  if (scheduler.kind == Kind::kWarmupCosineLr) {
    context.read("scheduler.params.warmup_min_ratio", scheduler.warmup_min_ratio);
    context.read("scheduler.params.cos_min_ratio", scheduler.cos_min_ratio);
  } else {
    context.read("scheduler.params.warmup_min_lr", scheduler.warmup_min_lr);
  }
}

void fill_one_cycle(Context& context, const OptimizerConfig& optimizer, OneCycleConfig& cycle) {
  const auto read = [&](const char* name, auto& into) { context.read(param(name), into); };
  read("cycle_min_lr", cycle.min_lr);
  read("cycle_max_lr", cycle.max_lr);
  read("cycle_first_step_size", cycle.first_step_size);
  cycle.second_step_size = cycle.first_step_size;
  read("cycle_second_step_size", cycle.second_step_size);
  read("cycle_first_stair_count", cycle.first_stair_count);
  cycle.second_stair_count = cycle.first_stair_count;
  read("cycle_second_stair_count", cycle.second_stair_count);
  read("decay_step_size", cycle.decay_step_size);
  read("decay_lr_rate", cycle.decay_lr_rate);
  read("cycle_momentum", cycle.cycle_momentum);
  read("cycle_min_mom", cycle.min_momentum);
  read("cycle_max_mom", cycle.max_momentum);
  read("decay_mom_rate", cycle.decay_momentum_rate);
  using Optimizer = OptimizerConfig::Kind;
  const bool no_betas = optimizer.kind == Optimizer::kSgd || optimizer.kind == Optimizer::kAdagrad;
  if (no_betas && cycle.cycle_momentum) {
    cycle.cycle_momentum = false;
    warn(context.notes, param("cycle_momentum"),
         "scheduler.params.cycle_momentum is off: the optimizer has no betas");
  }
}

void fill_range_test(Context& context, LrRangeTestConfig& test) {
  context.read(param("lr_range_test_min_lr"), test.min_lr);
  context.read(param("lr_range_test_step_size"), test.step_size);
  context.read(param("lr_range_test_step_rate"), test.step_rate);
  context.read(param("lr_range_test_staircase"), test.staircase);
}

void note_unused_rate(Context& context, const Config& config, double of_scheduler) {
  if (of_scheduler != config.optimizer.lr) {
    note(context.notes, "optimizer.params.lr",
         "the rate follows the scheduler, {} {}; the optimizer's lr {} is not used",
         config.scheduler.kind == Kind::kLrRangeTest ? "from" : "up to", of_scheduler,
         config.optimizer.lr);
  }
}

void fill_peak(Context& context, const Config& config, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.warmup_max_lr";
  const bool to_optimizer = scheduler.kind == Kind::kWarmupLr || context.keys.is_auto(path);
  if (const auto peak = context.resolve_value(path, context.flags.lr, "--lr")) {
    scheduler.warmup_max_lr = *peak;
  } else if (to_optimizer) {
    scheduler.warmup_max_lr = config.optimizer.lr;
    context.origins[path] = "the optimizer's lr";
  }
}

}  // namespace

void fill_scheduler(Context& context, Config& config) {
  if (context.keys.is_bad("scheduler")) return;
  if (!context.keys.has("scheduler")) {
    config.scheduler = from_flags(context, config.optimizer.lr);
    return;
  }
  const SchedulerType* type = type_of(context);
  if (type == nullptr) return;
  compare_flags(context, *type);
  SchedulerConfig& scheduler = config.scheduler;
  scheduler.kind = type->kind;
  switch (type->kind) {
    case Kind::kOneCycle:
      fill_one_cycle(context, config.optimizer, scheduler.one_cycle);
      note_unused_rate(context, config, scheduler.one_cycle.max_lr);
      return;
    case Kind::kLrRangeTest:
      fill_range_test(context, scheduler.range_test);
      note_unused_rate(context, config, scheduler.range_test.min_lr);
      return;
    default:
      fill_warmup(context, scheduler);
      if (type->kind == Kind::kWarmupCosineLr) return;
      fill_peak(context, config, scheduler);
      note_unused_rate(context, config, scheduler.warmup_max_lr);
  }
}

}  // namespace zeroth::configs
