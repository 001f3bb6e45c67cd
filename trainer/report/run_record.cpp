#include "trainer/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/exact_number.h"
#include "base/json.h"
#include "base/process_limits.h"
#include "base/replace_file.h"

namespace zeroth::trainer {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTrainersSteps = 500;  // that its state names where nothing goes by steps

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

double rounded(double value, double places) {
  const double unit = std::pow(10, places);
  return std::round(value * unit) / unit;
}

// NAME_runtime in seconds, and what it comes to for samples and steps.
void add_speed(Json& metrics, const std::string& name, double seconds, int64_t samples,
               int64_t steps) {
  metrics[name + "_runtime"] = rounded(seconds, 4);
  if (seconds <= 0) return;
  metrics[name + "_samples_per_second"] = rounded(static_cast<double>(samples) / seconds, 3);
  metrics[name + "_steps_per_second"] = rounded(static_cast<double>(steps) / seconds, 3);
}

int64_t steps_or_trainers(const Occasions& occasions) {
  return occasions.every() > 0 ? occasions.every() : kTrainersSteps;
}

std::string results_text(const Json& metrics) {
  return metrics.dump(4);
}

// Rows of log_history hold numbers and nulls alone.
void check_row(const JsonView& row) {
  for (const auto& [key, value] : row.object().items()) {
    if (!value.is_number() && !value.is_null()) row.at(key).refuse("a number or null");
  }
}

Json results_at(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  Json found = read_json({.name = path.string(), .limits = kConfigLimits});
  return found.is_object() ? found : Json::object();
}

}  // namespace

RunRecord::RunRecord(const RunPlan& plan)
    : plan_(plan), log_(plan.occasions(plan.flags.cadences.log)) {}

Json RunRecord::log_row(const StepRow& row, double loss) const {
  const engine::StepStats& stats = row.stats;
  return {{"epoch", plan_.epochs_after(stats.step)},
          {"grad_norm", finite(stats.grad_norm)},
          {"learning_rate", finite(stats.lr)},
          {"loss", finite(loss)},
          {"step", stats.step}};
}

Json RunRecord::step(const StepRow& row) {
  const engine::StepStats& stats = row.stats;
  if (!started_s_) started_s_ = row.since_start_s - row.step_s;
  ended_s_ = row.since_start_s;
  told_.steps = stats.step;
  told_.tokens += stats.tokens;
  told_.loss_sum += stats.loss;
  told_.unlogged_sum += stats.loss;
  ++told_.summed;
  ++told_.unlogged;
  const bool first = stats.step == 1 && plan_.flags.cadences.log_first;
  Json logged;
  if (first || log_.at(stats.step)) {
    logged = log_row(row, told_.unlogged_sum / static_cast<double>(told_.unlogged));
    told_.log_history.push_back(logged);
    told_.unlogged_sum = 0;
    told_.unlogged = 0;
  }
  return plan_.flags.cadences.log_given ? logged : log_row(row, stats.loss);
}

Json RunRecord::evaluated(const EvalRow& row) {
  Json metrics{{"epoch", plan_.epochs_after(row.step)}, {"eval_loss", finite(row.eval_loss)}};
  add_speed(metrics, "eval", row.eval_s, plan_.samples.eval_samples, plan_.eval_rounds());
  told_.evaluations[row.step] = metrics;
  told_.evaluations[row.step]["perplexity"] = finite(std::exp(row.eval_loss));
  told_.evaluations[row.step]["eval_samples"] = plan_.samples.eval_samples;
  metrics["step"] = row.step;
  told_.log_history.push_back(metrics);
  return metrics;
}

Json RunRecord::ended() const {
  Json last = train_metrics();
  last.update({{"step", told_.steps}, {"total_flos", total_flos()}});
  return last;
}

bool RunRecord::has_eval_loss(int64_t step) const {
  const auto found = told_.evaluations.find(step);
  return found != told_.evaluations.end() && found->second.value("eval_loss", Json()).is_number();
}

Json RunRecord::history(double now) const {
  Json evaluations = Json::array();
  for (const auto& [step, metrics] : told_.evaluations) evaluations.push_back({step, metrics});
  return {{"steps", told_.steps},
          {"tokens", told_.tokens},
          {"summed", told_.summed},
          {"loss_sum", exact_number(told_.loss_sum)},
          {"unlogged_sum", exact_number(told_.unlogged_sum)},
          {"unlogged", told_.unlogged},
          {"trained_s", exact_number(told_.earlier_s + (started_s_ ? now - *started_s_ : 0))},
          {"log_history", told_.log_history},
          {"evaluations", std::move(evaluations)}};
}

void RunRecord::go_on_from(const JsonView& history) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  Told told;
  told.steps = history.at("steps").integer(0, kMost);
  told.tokens = history.at("tokens").integer(0, kMost);
  told.summed = history.at("summed").integer(0, told.steps);
  told.loss_sum = exact_number(history.at("loss_sum"));
  told.unlogged_sum = exact_number(history.at("unlogged_sum"));
  told.unlogged = history.at("unlogged").integer(0, kMost);
  told.earlier_s = exact_number(history.at("trained_s"));
  const JsonView rows = history.at("log_history");
  for (size_t i = 0; i < rows.size(); ++i) check_row(rows.at(i));
  told.log_history = rows.json();
  const JsonView evaluations = history.at("evaluations");
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const JsonView metrics = evaluations.at(i).at(1);
    check_row(metrics);
    told.evaluations[evaluations.at(i).at(size_t{0}).integer(0, kMost)] = metrics.json();
  }
  told_ = std::move(told);
}

// As Trainer counts: six for each position and parameter that is in no embedding.
double RunRecord::total_flos() const {
  const model::ModelSpec& spec = plan_.spec;
  const int64_t rows = spec.vocab_size + (spec.learned_positions ? spec.max_positions : 0);
  const int64_t parameters = plan_.outline.num_parameters - rows * spec.hidden_size;
  return 6.0 * static_cast<double>(told_.tokens) * static_cast<double>(parameters);
}

Json RunRecord::train_metrics() const {
  const auto summed = static_cast<double>(std::max<int64_t>(1, told_.summed));
  Json metrics{{"epoch", plan_.epochs_after(told_.steps)},
               {"train_loss", finite(told_.loss_sum / summed)}};
  add_speed(metrics, "train", trained_s(), plan_.samples_after(told_.steps), told_.steps);
  return metrics;
}

Json RunRecord::state(const BestModel& best) const {
  const Cadences& cadences = plan_.flags.cadences;
  const int64_t total = plan_.samples.total_steps;
  Json state{{"epoch", plan_.epochs_after(told_.steps)},
             {"eval_steps", steps_or_trainers(plan_.occasions(cadences.evaluate))},
             {"global_step", told_.steps},
             {"is_hyper_param_search", false},
             {"is_local_process_zero", true},
             {"is_world_process_zero", true},
             {"log_history", told_.log_history},
             {"logging_steps", steps_or_trainers(log_)},
             {"max_steps", total},
             {"num_input_tokens_seen", 0},
             {"num_train_epochs", static_cast<int64_t>(std::ceil(plan_.epochs_after(total)))},
             {"save_steps", steps_or_trainers(plan_.occasions(cadences.save))},
             {"total_flos", total_flos()},
             {"train_batch_size", plan_.config.batch.micro_batch_size},
             {"trial_name", nullptr},
             {"trial_params", nullptr}};
  state["stateful_callbacks"]["TrainerControl"] = {
      {"args",
       {{"should_epoch_stop", false},
        {"should_evaluate", false},
        {"should_log", false},
        {"should_save", cadences.save.is_on()},
        {"should_training_stop", told_.steps >= total}}},
      {"attributes", Json::object()}};
  state["best_metric"] = best.loss() ? finite(*best.loss()) : Json(nullptr);
  state["best_global_step"] = best.step() ? Json(*best.step()) : Json(nullptr);
  const std::string folder = best.step() == total ? plan_.flags.output : best.folder().string();
  state["best_model_checkpoint"] = folder.empty() || !best.step() ? Json(nullptr) : Json(folder);
  return state;
}

void RunRecord::write_state(const std::filesystem::path& folder, const BestModel& best,
                            const OutputGuard& guard) const {
  replace_file(folder / "trainer_state.json", state(best).dump(2) + "\n", guard);
}

void RunRecord::write(const BestModel& best, int64_t final_step, const OutputGuard& guard) {
  if (guard) guard();
  const std::filesystem::path folder = plan_.flags.output;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw Error("{} cannot be made: {}", folder.string(), system_reason(failure.value()));
  Json all = plan_.trains() ? Json::object() : results_at(folder / "all_results.json");
  if (plan_.trains()) {
    Json metrics = train_metrics();
    told_.log_history.push_back(ended());
    write_state(folder, best, guard);
    metrics["train_samples"] = plan_.samples.train_size();
    replace_file(folder / "train_results.json", results_text(metrics), guard);
    all.update(metrics);
  }
  const auto evaluation = told_.evaluations.find(final_step);
  if (evaluation != told_.evaluations.end()) {
    replace_file(folder / "eval_results.json", results_text(evaluation->second), guard);
    all.update(evaluation->second);
  }
  replace_file(folder / "all_results.json", results_text(all), guard);
}

}  // namespace zeroth::trainer
