// Rules of Hugging Face's TrainingArguments that turn flags about evaluating, saving and logging
// into Intervals.
#include <fmt/format.h>

#include <cmath>

#include "base/text/printable.h"
#include "trainer/flags/flag_rules.h"

namespace zeroth::trainer {
namespace {

using Mode = Interval::Mode;
using Errors = std::vector<std::string>;

constexpr double kTrainerDefaultSteps = 500;  // of saving and logging, if no flag sets it
constexpr int64_t kDefaultKept = 2;           // checkpoints to keep, by our own default
// Ratios are compared as transformers does: as integer multiples of this unit.
constexpr double kUnitsOfRatio = 1'000'000;

std::optional<Mode> parse_strategy(const char* name, const std::string& text, bool best,
                                   Errors& errors) {
  std::vector<std::pair<std::string_view, Mode>> values = {
      {"no", Mode::kNever}, {"steps", Mode::kSteps}, {"epoch", Mode::kEpochs}};
  if (best) values.emplace_back("best", Mode::kBest);
  return parse_choice<Mode>(name, text, values, errors);
}

void check_steps(const char* name, const std::optional<double>& steps, Errors& errors) {
  if (!steps) return;
  if (!(*steps > 0)) {
    errors.push_back(fmt::format("{} {}: must be above 0", name, *steps));
  } else if (*steps > static_cast<double>(kMaxSteps)) {
    errors.push_back(fmt::format("{} {}: must be at most {}", name, *steps, kMaxSteps));
  } else if (*steps > 1 && *steps != std::floor(*steps)) {
    errors.push_back(
        fmt::format("{} {}: must be a whole number of steps, or below 1 as a fraction of all steps",
                    name, *steps));
  }
}

class IntervalRules {
 public:
  IntervalRules(const RawIntervals& raw, Flags& flags, Errors& errors)
      : raw_(raw), flags_(flags), intervals_(flags.intervals), errors_(errors) {}

  void resolve() {
    check_steps("--logging_steps", raw_.logging_steps, errors_);
    check_steps("--eval-every", raw_.eval_every, errors_);
    check_steps("--save-every", raw_.save_every, errors_);
    resolve_log();
    resolve_evaluate();
    resolve_save();
    resolve_best();
  }

 private:
  double logging_steps() const { return raw_.logging_steps.value_or(kTrainerDefaultSteps); }

  void resolve_log() {
    intervals_.log.mode =
        parse_strategy("--logging_strategy", raw_.logging_strategy, false, errors_)
            .value_or(Mode::kSteps);
    intervals_.log.every = logging_steps();
    intervals_.log_first = raw_.logging_first_step;
    intervals_.log_given = raw_.logging_steps || !raw_.logging_strategy.empty();
  }

  void resolve_evaluate() {
    Interval& evaluate = intervals_.evaluate;
    const auto requested = parse_strategy("--eval_strategy", raw_.eval_strategy, false, errors_);
    const bool steps_alone = raw_.eval_every && !requested;
    if (steps_alone && flags_.spellings.is_typed_as("--eval-every", "eval_steps")) {
      note(flags_.notes, "--eval-every",
           "--eval-every {}: no effect without --eval_strategy steps, as in Hugging Face's Trainer",
           *raw_.eval_every);
      return;
    }
    evaluate.mode = requested.value_or(steps_alone ? Mode::kSteps : Mode::kNever);
    evaluate.every = raw_.eval_every.value_or(logging_steps());
    evaluate.from = raw_.eval_delay.value_or(0);
    intervals_.evaluate_first = raw_.eval_on_start;
    if (flags_.has_eval_data() || flags_.eval_only) return;
    if (evaluate.is_on()) {
      errors_.push_back(
          fmt::format("{} needs --eval-data or --val-split",
                      requested ? "--eval_strategy " + raw_.eval_strategy : "--eval-every"));
    }
    if (raw_.eval_on_start) errors_.push_back("--eval_on_start needs --eval-data or --val-split");
  }

  void resolve_save() {
    Interval& save = intervals_.save;
    const auto requested = parse_strategy("--save_strategy", raw_.save_strategy, true, errors_);
    const bool by_default =
        flags_.values.for_trainer && !flags_.output.empty() && !flags_.eval_only;
    const bool steps = raw_.save_every.has_value() || by_default;
    save.mode = requested.value_or(steps ? Mode::kSteps : Mode::kNever);
    save.every = raw_.save_every.value_or(kTrainerDefaultSteps);
    resolve_minutes();
    if (raw_.save_total_limit) {
      if (*raw_.save_total_limit > 0) intervals_.save_total_limit = raw_.save_total_limit;
    } else if (!flags_.values.for_trainer) {
      intervals_.save_total_limit = kDefaultKept;
    }
    if (!save.is_on() || !flags_.output.empty() || flags_.eval_only) return;
    errors_.push_back(fmt::format(
        "{} needs --output", requested ? "--save_strategy " + raw_.save_strategy : "--save-every"));
  }

  void resolve_minutes() {
    if (!raw_.save_minutes) return;
    flags_.state.every_minutes = raw_.save_minutes;
    if (!(*raw_.save_minutes > 0)) {
      errors_.push_back(fmt::format("--save-minutes {}: must be above 0", *raw_.save_minutes));
    }
    if (flags_.output.empty() && !flags_.eval_only) {
      errors_.push_back("--save-minutes needs --output");
    }
  }

  void resolve_best() {
    const bool saves_best = intervals_.save.mode == Mode::kBest;
    intervals_.ends_with_best = raw_.load_best_model_at_end;
    intervals_.tracks_best =
        raw_.load_best_model_at_end || saves_best || !raw_.metric_for_best_model.empty();
    intervals_.greater_is_better = raw_.greater_is_better.value_or(false);
    const std::string& metric = raw_.metric_for_best_model;
    if (!metric.empty() && metric != "loss" && metric != "eval_loss") {
      errors_.push_back(fmt::format(
          "--metric_for_best_model {}: must be loss or eval_loss, which an evaluation gives",
          shortened(metric)));
    }
    if (saves_best && !intervals_.evaluate.is_on()) {
      errors_.push_back("--save_strategy best needs --eval_strategy steps or epoch");
    }
    if (raw_.load_best_model_at_end && !saves_best) check_match();
    if (raw_.load_best_model_at_end && flags_.output.empty()) {
      errors_.push_back("--load_best_model_at_end needs --output");
    }
  }

  // Checks that each model that is evaluated is saved, too.
  void check_match() {
    const Interval& evaluate = intervals_.evaluate;
    const Interval& save = intervals_.save;
    if (!evaluate.is_on() || evaluate.mode != save.mode) {
      errors_.push_back(
          "--load_best_model_at_end needs --eval_strategy and --save_strategy to be the same, "
          "steps "
          "or epoch, or --save_strategy best");
      return;
    }
    if (save.mode != Mode::kSteps) return;
    const bool ratio = save.every < 1;
    const double unit = ratio ? kUnitsOfRatio : 1;
    if (ratio == (evaluate.every < 1) && std::fmod(save.every * unit, evaluate.every * unit) == 0) {
      return;
    }
    errors_.push_back(fmt::format(
        "--load_best_model_at_end needs --save-every {} to be a multiple of --eval-every {}",
        save.every, evaluate.every));
  }

  const RawIntervals& raw_;
  Flags& flags_;
  Intervals& intervals_;
  Errors& errors_;
};

}  // namespace

void resolve_intervals(const RawIntervals& raw, Flags& flags, std::vector<std::string>& errors) {
  IntervalRules(raw, flags, errors).resolve();
}

}  // namespace zeroth::trainer
