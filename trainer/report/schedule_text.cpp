#include "trainer/report/schedule_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/text/units.h"
#include "configs/defaults.h"

namespace zeroth::trainer {
namespace {

using configs::HfSchedule;

std::string_view shape_text(HfSchedule::Shape shape) {
  return configs::kHfShapeNames[static_cast<size_t>(shape)].first;
}

std::string plateau_text(const configs::PlateauConfig& plateau) {
  return fmt::format("times {:g} after {} in a row that are no better", plateau.factor,
                     pluralize(plateau.patience + 1, "evaluation"));
}

// Describes the schedule after the warm-up.
std::string decay_text(const HfSchedule& schedule) {
  using Type = HfSchedule::Type;
  const auto to = [&](const std::string& decay) {
    return fmt::format("{} at step {}", decay, schedule.total_steps);
  };
  switch (schedule.type) {
    case Type::kConstant:
    case Type::kConstantWithWarmup:
      return "constant rate";
    case Type::kLinear:
      return to("linear to 0");
    case Type::kCosine:
      return to(schedule.num_cycles == 0.5
                    ? "cosine to 0"
                    : fmt::format("cosine of {:g} waves", schedule.num_cycles));
    case Type::kCosineWithRestarts:
      return to(fmt::format("cosine to 0, {:g} times,", schedule.num_cycles));
    case Type::kPolynomial:
      return to(fmt::format("polynomial of power {:g} to {:g}", schedule.power, schedule.lr_end));
    case Type::kInverseSqrt:
      return fmt::format("inverse square root, timescale {}", schedule.timescale);
    case Type::kCosineWithMinLr:
    case Type::kCosineWarmupWithMinLr:
      return to(fmt::format("cosine to {:g} of the rate", schedule.min_lr_rate));
    case Type::kWarmupStableDecay:
      return fmt::format("constant for {}, then {} to {:g} of the rate over {}",
                         pluralize(schedule.stable_steps, "step"), shape_text(schedule.decay_shape),
                         schedule.min_lr_rate, pluralize(schedule.decay_steps, "step"));
    case Type::kReduceOnPlateau:
      return plateau_text(schedule.plateau);
  }
  return "unknown schedule";
}

std::string hf_text(const HfSchedule& schedule) {
  const std::string decay = decay_text(schedule);
  if (schedule.warmup_steps == 0 || schedule.type == HfSchedule::Type::kReduceOnPlateau) {
    return decay;
  }
  return fmt::format("{} after a {} warm-up over {}", decay, shape_text(schedule.warmup_shape),
                     pluralize(schedule.warmup_steps, "step"));
}

}  // namespace

std::string schedule_text(const configs::SchedulerConfig& scheduler) {
  using Kind = configs::SchedulerConfig::Kind;
  const bool linear = scheduler.warmup_type == configs::SchedulerConfig::Warmup::kLinear;
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

std::string defaults_line(const RunPlan& plan) {
  const Flags& flags = plan.flags;
  if (!flags.values.for_trainer || !plan.trains()) return "";
  std::vector<std::string> defaults;
  if (!flags.steps && !flags.epochs) {
    defaults.push_back(fmt::format("{:g} epochs", configs::defaults_for(flags.values).epochs));
  }
  const configs::SchedulerConfig& scheduler = plan.config.scheduler;
  if (!flags.values.schedule && scheduler.kind == configs::SchedulerConfig::Kind::kHuggingFace) {
    defaults.push_back(fmt::format("{} decay of the rate", to_string(scheduler.hf.type)));
  }
  if (plan.config.optimizer.no_decay && !flags.values.no_decay) {
    defaults.emplace_back("no weight decay of norms and biases");
  }
  if (plan.samples.epoch_positions > plan.samples.epoch_samples) {
    defaults.emplace_back("a short step at the end of an epoch");
  }
  if (defaults.empty()) return "";
  return fmt::format("Hugging Face Trainer's, whose flags the command line uses: {}",
                     fmt::join(defaults, ", "));
}

}  // namespace zeroth::trainer
