#include <algorithm>
#include <cmath>

#include "base/text/units.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Kind = SchedulerConfig::Kind;

struct SchedulerType {
  Kind kind;
  std::string_view takes, required;  // keys of scheduler.params
  std::string_view rate = {};        // the key among them that replaces the optimizer's lr

  std::string_view name() const { return to_string(kind); }
};

// Types of DeepSpeed's lr_schedules.py.
constexpr SchedulerType kTypes[] = {
    {Kind::kWarmupLr, "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type", "",
     "warmup_max_lr"},
    {Kind::kWarmupDecayLr,
     "total_num_steps warmup_min_lr warmup_max_lr warmup_num_steps warmup_type", "total_num_steps",
     "warmup_max_lr"},
    {Kind::kWarmupCosineLr,
     "total_num_steps warmup_min_ratio warmup_num_steps warmup_type cos_min_ratio",
     "total_num_steps"},
    {Kind::kOneCycle,
     "cycle_min_lr cycle_max_lr cycle_first_step_size cycle_second_step_size "
     "cycle_first_stair_count cycle_second_stair_count decay_step_size decay_lr_rate "
     "cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate",
     "cycle_min_lr cycle_max_lr", "cycle_max_lr"},
    {Kind::kLrRangeTest,
     "lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate "
     "lr_range_test_staircase",
     "", "lr_range_test_min_lr"},
};

std::string param(std::string_view name) {
  return fmt::format("scheduler.params.{}", name);
}

const SchedulerType* type_of(Context& context) {
  TypeNames names;
  for (const SchedulerType& type : kTypes) names.push_back(type.name());
  const auto index = parse_type(context, "scheduler.type", names, {}, false);
  if (!index) return nullptr;
  const SchedulerType* const type = &kTypes[*index];
  if (!context.keys.has("scheduler.params")) {
    context.add_error("scheduler.params: missing; {} needs an object here", type->name());
    return type;
  }
  check_params(context, "scheduler", type->name(), type->takes);
  for (const std::string_view required : split_values(type->required, ' ')) {
    if (!context.keys.has(param(required))) {
      context.add_error("{}: missing; {} needs {}", param(required), type->name(),
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
         type.name());
  };
  if (!contains_value(type.takes, "warmup_num_steps", ' ') &&
      (flags.warmup_steps || flags.warmup_ratio)) {
    const std::string flag = flags.warmup_steps ? "--warmup-steps" : "--warmup-ratio";
    report(flag, fmt::format("{}: {} has no warm-up", flag, type.name()));
  }
  if (flags.schedule && same_shape(*flags.schedule) != type.kind) {
    const std::string flag = fmt::format("--lr_scheduler_type {}", to_string(*flags.schedule));
    report(flag,
           fmt::format("scheduler.type: {} in the file, but {}; leave one out", type.name(), flag));
  }
  if (!flags.schedule_kwargs.empty()) {
    report("--lr_scheduler_kwargs",
           fmt::format("--lr_scheduler_kwargs: the file's {} has its own params: leave it out",
                       type.name()));
  }
}

void fill_total(Context& context, SchedulerConfig& scheduler) {
  const std::string path = "scheduler.params.total_num_steps";
  const auto& run = context.facts.total_steps;
  if (const auto total = context.keys.get<int64_t>(path)) {
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

// Reads the warm-up. The shortest warm-up has 1 step, since DeepSpeed treats any number below
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
  // DeepSpeed treats unknown shapes as log, "cosine" and "Linear" among them.
  const std::string type_path = param("warmup_type");
  const auto shape = context.keys.get<std::string>(type_path);
  if (shape && !parse_enum<SchedulerConfig::Warmup>(*shape)) {
    warn(context.notes, type_path,
         "{}: {} is unknown and treated as \"log\", as in DeepSpeed; known: \"log\" and \"linear\"",
         type_path, Context::shown(*shape));
  }
  if (scheduler.kind != Kind::kWarmupLr) fill_total(context, scheduler);
}

// Fills the falling half of the cycle, which by default is like the rising one.
void fill_one_cycle(Context& context, Config& config) {
  constexpr std::pair<std::string_view, std::string_view> kHalves[] = {
      {"cycle_first_step_size", "cycle_second_step_size"},
      {"cycle_first_stair_count", "cycle_second_stair_count"}};
  for (const auto& [first, second] : kHalves) {
    if (context.keys.get<double>(param(second))) continue;
    set_value(config, param(second), value_of(config, param(first)));
  }
  bool& cycles_momentum = config.scheduler.one_cycle.cycle_momentum;
  if (cycles_momentum && !config.optimizer.has_betas()) {
    cycles_momentum = false;
    warn(context.notes, param("cycle_momentum"),
         "scheduler.params.cycle_momentum is off: the optimizer has no betas");
  }
}

// Notes that the schedule has its own rate, if that is not the optimizer's.
void note_unused_rate(Context& context, const Config& config, const SchedulerType& type) {
  if (type.rate.empty()) return;
  const auto rate = value_of(config, param(type.rate)).get<double>();
  if (rate != config.optimizer.lr) {
    note(context.notes, "optimizer.params.lr",
         "the rate follows the scheduler, {} {}; the optimizer's lr {} is not used",
         type.kind == Kind::kLrRangeTest ? "from" : "up to", rate, config.optimizer.lr);
  }
}

void fill_peak(Context& context, Config& config) {
  SchedulerConfig& scheduler = config.scheduler;
  const std::string path = "scheduler.params.warmup_max_lr";
  const bool to_optimizer = scheduler.kind == Kind::kWarmupLr || context.keys.is_auto(path);
  if (const auto peak = context.resolve_value(path, context.flags.lr)) {
    scheduler.warmup_max_lr = *peak;
  } else if (to_optimizer) {
    scheduler.warmup_max_lr = config.optimizer.lr;
    context.origins[path] = "the optimizer's lr";
  }
}

}  // namespace

std::string_view scheduler_params(const Config& config) {
  const auto* const type =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const SchedulerType& known) { return known.kind == config.scheduler.kind; });
  return type == std::end(kTypes) ? "" : type->takes;
}

void fill_scheduler(Context& context, Config& config) {
  if (context.keys.is_bad("scheduler")) return;
  if (!context.keys.has("scheduler")) {
    config.scheduler = from_flags(context, config.optimizer.lr);
    return;
  }
  const SchedulerType* type = type_of(context);
  if (type == nullptr) return;
  compare_flags(context, *type);
  config.scheduler.kind = type->kind;
  for (const std::string_view name : split_values(type->takes, ' ')) {
    context.read(key_at(param(name)), config);
  }
  if (contains_value(type->takes, "warmup_num_steps", ' ')) fill_warmup(context, config.scheduler);
  if (contains_value(type->takes, "warmup_max_lr", ' ')) fill_peak(context, config);
  if (type->kind == Kind::kOneCycle) fill_one_cycle(context, config);
  note_unused_rate(context, config, *type);
}

void check_schedule(Context& context, const Config& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  if (scheduler.total_num_steps > 0 && scheduler.total_num_steps < scheduler.warmup_num_steps) {
    warn(context.notes, "scheduler.params.warmup_num_steps",
         "the schedule has {} steps, fewer than its warm-up of {}", scheduler.total_num_steps,
         scheduler.warmup_num_steps);
  }
}

std::string schedule_text(const SchedulerConfig& scheduler) {
  const bool linear = scheduler.warmup_type == SchedulerConfig::Warmup::kLinear;
  const std::string warmup = fmt::format("{} warm-up over {}", linear ? "linear" : "logarithmic",
                                         pluralize(scheduler.warmup_num_steps, "step"));
  switch (scheduler.kind) {
    case Kind::kConstant:
      return "constant rate";
    case Kind::kWarmupLr:
      return fmt::format("{} to {:g}, then constant", warmup, scheduler.warmup_max_lr);
    case Kind::kWarmupDecayLr:
      return fmt::format("{} to {:g}, then linear to {:g} at step {}", warmup,
                         scheduler.warmup_max_lr, scheduler.warmup_min_lr,
                         scheduler.total_num_steps);
    case Kind::kWarmupCosineLr:
      return fmt::format("{}, then cosine to {:g} of the rate at step {}", warmup,
                         scheduler.cos_min_ratio, scheduler.total_num_steps);
    case Kind::kOneCycle:
      return fmt::format("one cycle of {:g} + {:g} steps between {:g} and {:g}",
                         scheduler.one_cycle.first_step_size, scheduler.one_cycle.second_step_size,
                         scheduler.one_cycle.min_lr, scheduler.one_cycle.max_lr);
    case Kind::kLrRangeTest:
      return fmt::format("range test from {:g}", scheduler.range_test.min_lr);
    case Kind::kHuggingFace:
      return hf_text(scheduler.hf);
  }
  return "unknown schedule";
}

}  // namespace zeroth::configs
