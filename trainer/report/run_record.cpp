#include "trainer/report/run_record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/files/replace_file.h"
#include "base/json/json.h"
#include "base/machine/process_limits.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kTrainerDefaultSteps = 500;  // in its state, if no action goes by steps

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

double rounded(double value, double places) {
  const double unit = std::pow(10, places);
  return std::round(value * unit) / unit;
}

// Adds NAME_runtime in seconds, and the samples and steps per second.
void add_speed(Json& metrics, const std::string& name, double seconds, int64_t samples,
               int64_t steps) {
  metrics[name + "_runtime"] = rounded(seconds, 4);
  if (seconds <= 0) return;
  metrics[name + "_samples_per_second"] = rounded(static_cast<double>(samples) / seconds, 3);
  metrics[name + "_steps_per_second"] = rounded(static_cast<double>(steps) / seconds, 3);
}

int64_t steps_or_default(const StepTrigger& trigger) {
  return trigger.interval_steps() > 0 ? trigger.interval_steps() : kTrainerDefaultSteps;
}

// Checks that a row of log_history holds only numbers and nulls.
void check_row(const JsonView& row) {
  for (const auto& [key, value] : row.object().items()) {
    if (!value.is_number() && !value.is_null()) row.at(key).refuse("a number or null");
  }
}

Json read_results(const fs::path& path) {
  if (!fs::exists(path)) return Json::object();
  Json found = read_json({.name = path.string(), .limits = kConfigLimits});
  return found.is_object() ? found : Json::object();
}

}  // namespace

RunRecord::RunRecord(const RunPlan& plan)
    : plan_(plan), log_trigger_(plan.trigger(plan.flags.intervals.log)) {}

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
  totals_.steps = stats.step;
  totals_.tokens += stats.tokens;
  totals_.loss_sum += stats.loss;
  totals_.unlogged_sum += stats.loss;
  ++totals_.num_summed;
  ++totals_.unlogged;
  const bool first = stats.step == 1 && plan_.flags.intervals.log_first;
  Json logged;
  if (first || log_trigger_.is_due(stats.step)) {
    logged = log_row(row, totals_.unlogged_sum / static_cast<double>(totals_.unlogged));
    totals_.log_history.push_back(logged);
    totals_.unlogged_sum = 0;
    totals_.unlogged = 0;
  }
  return plan_.flags.intervals.log_given ? logged : log_row(row, stats.loss);
}

Json RunRecord::add_evaluation(const EvalRow& row) {
  Json metrics{{"epoch", plan_.epochs_after(row.step)}, {"eval_loss", finite(row.eval_loss)}};
  add_speed(metrics, "eval", row.eval_s, plan_.samples.eval_size(),
            data::num_eval_batches(plan_.samples.eval_size(), plan_.eval_partition(0)));
  totals_.evaluations[row.step] = metrics;
  totals_.evaluations[row.step]["perplexity"] = finite(std::exp(row.eval_loss));
  totals_.evaluations[row.step]["eval_samples"] = plan_.samples.eval_size();
  metrics["step"] = row.step;
  totals_.log_history.push_back(metrics);
  return metrics;
}

Json RunRecord::final_row() const {
  Json last = train_metrics();
  last.update({{"step", totals_.steps}, {"total_flos", total_flos()}});
  return last;
}

bool RunRecord::has_eval_loss(int64_t step) const {
  const auto found = totals_.evaluations.find(step);
  return found != totals_.evaluations.end() && found->second.value("eval_loss", Json()).is_number();
}

Json RunRecord::history(double now) const {
  Json evaluations = Json::array();
  for (const auto& [step, metrics] : totals_.evaluations) evaluations.push_back({step, metrics});
  return {{"steps", totals_.steps},
          {"tokens", totals_.tokens},
          {"summed", totals_.num_summed},
          {"loss_sum", exact_number(totals_.loss_sum)},
          {"unlogged_sum", exact_number(totals_.unlogged_sum)},
          {"unlogged", totals_.unlogged},
          {"trained_s", exact_number(totals_.earlier_s + (started_s_ ? now - *started_s_ : 0))},
          {"log_history", totals_.log_history},
          {"evaluations", std::move(evaluations)}};
}

void RunRecord::resume_from(const JsonView& history) {
  constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max() / 4;
  RunTotals totals;
  totals.steps = history.at("steps").integer(0, kMaxCount);
  totals.tokens = history.at("tokens").integer(0, kMaxCount);
  totals.num_summed = history.at("summed").integer(0, totals.steps);
  totals.loss_sum = exact_number(history.at("loss_sum"));
  totals.unlogged_sum = exact_number(history.at("unlogged_sum"));
  totals.unlogged = history.at("unlogged").integer(0, kMaxCount);
  totals.earlier_s = exact_number(history.at("trained_s"));
  const JsonView rows = history.at("log_history");
  for (size_t i = 0; i < rows.size(); ++i) check_row(rows.at(i));
  totals.log_history = rows.json();
  const JsonView evaluations = history.at("evaluations");
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const JsonView metrics = evaluations.at(i).at(1);
    check_row(metrics);
    totals.evaluations[evaluations.at(i).at(size_t{0}).integer(0, kMaxCount)] = metrics.json();
  }
  totals_ = std::move(totals);
}

// Counts operations as Trainer does: six for each position and each parameter outside embeddings.
double RunRecord::total_flos() const {
  const model::ModelSpec& spec = plan_.spec;
  const int64_t rows = spec.vocab_size + (spec.learned_positions ? spec.max_positions : 0);
  const int64_t parameters = plan_.estimate.num_parameters - rows * spec.hidden_size;
  return 6.0 * static_cast<double>(totals_.tokens) * static_cast<double>(parameters);
}

Json RunRecord::train_metrics() const {
  const auto num_summed = static_cast<double>(std::max<int64_t>(1, totals_.num_summed));
  Json metrics{{"epoch", plan_.epochs_after(totals_.steps)},
               {"train_loss", finite(totals_.loss_sum / num_summed)}};
  add_speed(metrics, "train", trained_seconds(), plan_.samples_after(totals_.steps), totals_.steps);
  return metrics;
}

Json RunRecord::state(const BestModel& best) const {
  const Intervals& intervals = plan_.flags.intervals;
  const int64_t total = plan_.samples.total_steps;
  Json state{{"epoch", plan_.epochs_after(totals_.steps)},
             {"eval_steps", steps_or_default(plan_.trigger(intervals.evaluate))},
             {"global_step", totals_.steps},
             {"is_hyper_param_search", false},
             {"is_local_process_zero", true},
             {"is_world_process_zero", true},
             {"log_history", totals_.log_history},
             {"logging_steps", steps_or_default(log_trigger_)},
             {"max_steps", total},
             {"num_input_tokens_seen", 0},
             {"num_train_epochs", static_cast<int64_t>(std::ceil(plan_.epochs_after(total)))},
             {"save_steps", steps_or_default(plan_.trigger(intervals.save))},
             {"total_flos", total_flos()},
             {"train_batch_size", plan_.train_partition(0).micro_batch},
             {"trial_name", nullptr},
             {"trial_params", nullptr}};
  state["stateful_callbacks"]["TrainerControl"] = {
      {"args",
       {{"should_epoch_stop", false},
        {"should_evaluate", false},
        {"should_log", false},
        {"should_save", intervals.save.is_on()},
        {"should_training_stop", totals_.steps >= total}}},
      {"attributes", Json::object()}};
  state["best_metric"] = best.loss() ? finite(*best.loss()) : Json(nullptr);
  state["best_global_step"] = best.step() ? Json(*best.step()) : Json(nullptr);
  const std::string directory =
      best.step() == total ? plan_.flags.output : best.directory().string();
  state["best_model_checkpoint"] =
      directory.empty() || !best.step() ? Json(nullptr) : Json(directory);
  return state;
}

void RunRecord::write_state(const fs::path& directory, const BestModel& best,
                            const OutputGuard& guard) const {
  replace_file(directory / "trainer_state.json", state(best).dump(2) + "\n", guard);
}

void RunRecord::write(const BestModel& best, int64_t final_step, const OutputGuard& guard) {
  if (guard) guard();
  const fs::path directory = plan_.flags.output;
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure)
    throw Error("{} cannot be created: {}", directory.string(), system_reason(failure.value()));
  Json all = plan_.trains() ? Json::object() : read_results(directory / "all_results.json");
  if (plan_.trains()) {
    Json metrics = train_metrics();
    totals_.log_history.push_back(final_row());
    write_state(directory, best, guard);
    metrics["train_samples"] = plan_.samples.train_size();
    replace_file(directory / "train_results.json", metrics.dump(4), guard);
    all.update(metrics);
  }
  const auto evaluation = totals_.evaluations.find(final_step);
  if (evaluation != totals_.evaluations.end()) {
    replace_file(directory / "eval_results.json", evaluation->second.dump(4), guard);
    all.update(evaluation->second);
  }
  replace_file(directory / "all_results.json", all.dump(4), guard);
}

}  // namespace zeroth::trainer
