#include "trainer/flags/cadence_rules.h"

#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "trainer/flags/choice.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {
namespace {

using At = Cadence::At;
using Complaints = std::vector<std::string>;

constexpr double kTrainersSteps = 500;  // of saving and logging, where nobody says how many
constexpr int64_t kNewest = 2;          // folders on the way that stay, by our own default
// Ratios are compared as transformers does: by whole numbers of this unit.
constexpr double kUnitsOfRatio = 1'000'000;

std::optional<At> strategy(const char* name, const std::string& text, bool best,
                           Complaints& complaints) {
  std::vector<std::pair<std::string_view, At>> values = {
      {"no", At::kNever}, {"steps", At::kSteps}, {"epoch", At::kEpochs}};
  if (best) values.emplace_back("best", At::kBest);
  return choose<At>(name, text, values, complaints);
}

void check_steps(const char* name, const std::optional<double>& steps, Complaints& complaints) {
  if (!steps) return;
  if (!(*steps > 0)) {
    complaints.push_back(fmt::format("{} {}: must be above 0", name, *steps));
  } else if (*steps > static_cast<double>(kMostSteps)) {
    complaints.push_back(fmt::format("{} {}: must be at most {}", name, *steps, kMostSteps));
  } else if (*steps > 1 && *steps != std::floor(*steps)) {
    complaints.push_back(fmt::format(
        "{} {}: must be a whole number of steps, or below 1 as a part of all steps", name, *steps));
  }
}

class Rules {
 public:
  Rules(const RawCadences& raw, Flags& flags, Complaints& complaints)
      : raw_(raw), flags_(flags), cadences_(flags.cadences), complaints_(complaints) {}

  void settle() {
    check_steps("--logging_steps", raw_.logging_steps, complaints_);
    check_steps("--eval-every", raw_.eval_every, complaints_);
    check_steps("--save-every", raw_.save_every, complaints_);
    settle_log();
    settle_evaluate();
    settle_save();
    settle_best();
  }

 private:
  double logging_steps() const { return raw_.logging_steps.value_or(kTrainersSteps); }

  void settle_log() {
    cadences_.log.at = strategy("--logging_strategy", raw_.logging_strategy, false, complaints_)
                           .value_or(At::kSteps);
    cadences_.log.every = logging_steps();
    cadences_.log_first = raw_.logging_first_step;
    cadences_.log_given = raw_.logging_steps || !raw_.logging_strategy.empty();
  }

  void settle_evaluate() {
    Cadence& evaluate = cadences_.evaluate;
    const auto asked = strategy("--eval_strategy", raw_.eval_strategy, false, complaints_);
    const bool steps_alone = raw_.eval_every && !asked;
    if (steps_alone && flags_.spellings.is_typed_as("--eval-every", "eval_steps")) {
      note(flags_.notes, "--eval-every",
           "--eval-every {}: no effect without --eval_strategy steps, as in Hugging Face's Trainer",
           *raw_.eval_every);
      return;
    }
    evaluate.at = asked.value_or(steps_alone ? At::kSteps : At::kNever);
    evaluate.every = raw_.eval_every.value_or(logging_steps());
    evaluate.from = raw_.eval_delay.value_or(0);
    cadences_.evaluate_first = raw_.eval_on_start;
    if (!flags_.eval_data.empty() || flags_.eval_only) return;
    if (evaluate.is_on()) {
      complaints_.push_back(
          fmt::format("{} needs --eval-data",
                      asked ? "--eval_strategy " + raw_.eval_strategy : "--eval-every"));
    }
    if (raw_.eval_on_start) complaints_.push_back("--eval_on_start needs --eval-data");
  }

  void settle_save() {
    Cadence& save = cadences_.save;
    const auto asked = strategy("--save_strategy", raw_.save_strategy, true, complaints_);
    const bool by_default =
        flags_.values.for_trainer && !flags_.output.empty() && !flags_.eval_only;
    const bool steps = raw_.save_every.has_value() || by_default;
    save.at = asked.value_or(steps ? At::kSteps : At::kNever);
    save.every = raw_.save_every.value_or(kTrainersSteps);
    settle_minutes();
    if (raw_.save_total_limit) {
      if (*raw_.save_total_limit > 0) cadences_.kept = raw_.save_total_limit;
    } else if (!flags_.values.for_trainer) {
      cadences_.kept = kNewest;
    }
    if (!save.is_on() || !flags_.output.empty() || flags_.eval_only) return;
    complaints_.push_back(fmt::format(
        "{} needs --output", asked ? "--save_strategy " + raw_.save_strategy : "--save-every"));
  }

  void settle_minutes() {
    if (!raw_.save_minutes) return;
    flags_.state.every_minutes = raw_.save_minutes;
    if (!(*raw_.save_minutes > 0)) {
      complaints_.push_back(fmt::format("--save-minutes {}: must be above 0", *raw_.save_minutes));
    }
    if (flags_.output.empty() && !flags_.eval_only) {
      complaints_.push_back("--save-minutes needs --output");
    }
  }

  void settle_best() {
    const bool saves_best = cadences_.save.at == At::kBest;
    cadences_.ends_with_best = raw_.load_best_model_at_end;
    cadences_.tracks_best =
        raw_.load_best_model_at_end || saves_best || !raw_.metric_for_best_model.empty();
    cadences_.greater_is_better = raw_.greater_is_better.value_or(false);
    const std::string& metric = raw_.metric_for_best_model;
    if (!metric.empty() && metric != "loss" && metric != "eval_loss") {
      complaints_.push_back(fmt::format(
          "--metric_for_best_model {}: must be loss or eval_loss, which an evaluation gives",
          shortened(metric)));
    }
    if (saves_best && !cadences_.evaluate.is_on()) {
      complaints_.push_back("--save_strategy best needs --eval_strategy steps or epoch");
    }
    if (raw_.load_best_model_at_end && !saves_best) check_match();
    if (raw_.load_best_model_at_end && flags_.output.empty()) {
      complaints_.push_back("--load_best_model_at_end needs --output");
    }
  }

  // A model that was evaluated has to be saved, too.
  void check_match() {
    const Cadence& evaluate = cadences_.evaluate;
    const Cadence& save = cadences_.save;
    if (!evaluate.is_on() || evaluate.at != save.at) {
      complaints_.push_back(
          "--load_best_model_at_end needs --eval_strategy and --save_strategy to be the same, "
          "steps "
          "or epoch, or --save_strategy best");
      return;
    }
    if (save.at != At::kSteps) return;
    const bool ratio = save.every < 1;
    const double unit = ratio ? kUnitsOfRatio : 1;
    if (ratio == (evaluate.every < 1) && std::fmod(save.every * unit, evaluate.every * unit) == 0) {
      return;
    }
    complaints_.push_back(fmt::format(
        "--load_best_model_at_end needs --save-every {} to be a multiple of --eval-every {}",
        save.every, evaluate.every));
  }

  const RawCadences& raw_;
  Flags& flags_;
  Cadences& cadences_;
  Complaints& complaints_;
};

}  // namespace

void settle_cadences(const RawCadences& raw, Flags& flags, std::vector<std::string>& complaints) {
  Rules(raw, flags, complaints).settle();
}

}  // namespace zeroth::trainer
