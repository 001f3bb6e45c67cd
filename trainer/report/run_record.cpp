#include "trainer/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
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

Json results_at(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  Json found = read_json({.name = path.string(), .limits = kConfigLimits});
  return found.is_object() ? found : Json::object();
}

}  // namespace

RunRecord::RunRecord(const RunPlan& plan)
    : plan_(plan), log_(plan.occasions(plan.flags.cadences.log)) {}

void RunRecord::step(const StepRow& row) {
  const engine::StepStats& stats = row.stats;
  if (steps_ == 0) started_s_ = row.since_start_s - row.step_s;
  ended_s_ = row.since_start_s;
  steps_ = stats.step;
  tokens_ += stats.tokens;
  loss_sum_ += stats.loss;
  unlogged_sum_ += stats.loss;
  ++unlogged_;
  const bool first = stats.step == 1 && plan_.flags.cadences.log_first;
  if (!first && !log_.at(stats.step)) return;
  log_history_.push_back({{"epoch", plan_.epochs_after(stats.step)},
                          {"grad_norm", finite(stats.grad_norm)},
                          {"learning_rate", finite(stats.lr)},
                          {"loss", finite(unlogged_sum_ / static_cast<double>(unlogged_))},
                          {"step", stats.step}});
  unlogged_sum_ = 0;
  unlogged_ = 0;
}

void RunRecord::evaluated(const EvalRow& row) {
  Json metrics{{"epoch", plan_.epochs_after(row.step)}, {"eval_loss", finite(row.eval_loss)}};
  add_speed(metrics, "eval", row.eval_s, plan_.samples.eval_samples, plan_.eval_rounds());
  evaluations_[row.step] = metrics;
  evaluations_[row.step]["perplexity"] = finite(std::exp(row.eval_loss));
  evaluations_[row.step]["eval_samples"] = plan_.samples.eval_samples;
  metrics["step"] = row.step;
  log_history_.push_back(std::move(metrics));
}

// As Trainer counts: six for each position and parameter that is in no embedding.
double RunRecord::total_flos() const {
  const model::ModelSpec& spec = plan_.spec;
  const int64_t rows = spec.vocab_size + (spec.learned_positions ? spec.max_positions : 0);
  const int64_t parameters = plan_.outline.num_parameters - rows * spec.hidden_size;
  return 6.0 * static_cast<double>(tokens_) * static_cast<double>(parameters);
}

Json RunRecord::train_metrics() const {
  Json metrics{
      {"epoch", plan_.epochs_after(steps_)},
      {"train_loss", finite(loss_sum_ / static_cast<double>(std::max<int64_t>(1, steps_)))}};
  add_speed(metrics, "train", ended_s_ - started_s_, plan_.samples_after(steps_), steps_);
  return metrics;
}

Json RunRecord::state(const BestModel& best) const {
  const Cadences& cadences = plan_.flags.cadences;
  const int64_t total = plan_.samples.total_steps;
  Json state{{"epoch", plan_.epochs_after(steps_)},
             {"eval_steps", steps_or_trainers(plan_.occasions(cadences.evaluate))},
             {"global_step", steps_},
             {"is_hyper_param_search", false},
             {"is_local_process_zero", true},
             {"is_world_process_zero", true},
             {"log_history", log_history_},
             {"logging_steps", steps_or_trainers(log_)},
             {"max_steps", total},
             {"num_input_tokens_seen", 0},
             {"num_train_epochs", static_cast<int64_t>(std::ceil(plan_.epochs_after(total)))},
             {"save_steps", steps_or_trainers(plan_.occasions(cadences.save))},
             {"total_flos", total_flos()},
             {"train_batch_size", plan_.config.batch.micro_batch_size},
             {"trial_name", nullptr},
             {"trial_params", nullptr}};
  state["stateful_callbacks"]["TrainerControl"] = {{"args",
                                                    {{"should_epoch_stop", false},
                                                     {"should_evaluate", false},
                                                     {"should_log", false},
                                                     {"should_save", cadences.save.is_on()},
                                                     {"should_training_stop", steps_ >= total}}},
                                                   {"attributes", Json::object()}};
  state["best_metric"] = best.loss() ? finite(*best.loss()) : Json(nullptr);
  state["best_global_step"] = best.step() ? Json(*best.step()) : Json(nullptr);
  const std::string folder = best.step() == total ? plan_.flags.output : best.folder().string();
  state["best_model_checkpoint"] = folder.empty() || !best.step() ? Json(nullptr) : Json(folder);
  return state;
}

void RunRecord::write_state(const std::filesystem::path& folder, const BestModel& best) const {
  replace_file(folder / "trainer_state.json", state(best).dump(2) + "\n");
}

void RunRecord::write(const BestModel& best, int64_t final_step) {
  const std::filesystem::path folder = plan_.flags.output;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw Error("{} cannot be made: {}", folder.string(), system_reason(failure.value()));
  Json all = plan_.trains() ? Json::object() : results_at(folder / "all_results.json");
  if (plan_.trains()) {
    Json metrics = train_metrics();
    Json last = metrics;
    last.update({{"step", steps_}, {"total_flos", total_flos()}});
    log_history_.push_back(std::move(last));
    write_state(folder, best);
    metrics["train_samples"] = plan_.samples.train_size();
    replace_file(folder / "train_results.json", results_text(metrics));
    all.update(metrics);
  }
  const auto evaluation = evaluations_.find(final_step);
  if (evaluation != evaluations_.end()) {
    replace_file(folder / "eval_results.json", results_text(evaluation->second));
    all.update(evaluation->second);
  }
  replace_file(folder / "all_results.json", results_text(all));
}

}  // namespace zeroth::trainer
