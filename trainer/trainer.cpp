#include "trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/files/replace_file.h"
#include "base/machine/host_limits.h"
#include "base/machine/timer.h"
#include "base/text/units.h"
#include "checkpoint/rank_group.h"
#include "comm/cpu_collectives.h"
#include "comm/device_mesh.h"
#include "model/hf/model_layout.h"
#include "trainer/batch_loader.h"
#include "trainer/report/history.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

// Seconds between two releases of freed memory, and the steps that they take at least: the pages of
// what the next step allocates are new, which takes it up to a second for 4 GiB.
constexpr double kReleaseIntervalS = 30;
constexpr double kReleaseIntervalSteps = 2;

}  // namespace

std::string Trainer::LastLoss::problem() const {
  const std::string text = fmt::format("the loss of {} is {}", source, canonicalize_nan(value));
  return not_finite.empty() ? text
                            : fmt::format("{} and gradients are not finite {}", text, not_finite);
}

Trainer::Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop)
    : plan_(plan),
      engine_(engine),
      reporter_(reporter),
      stop_(stop),
      checkpoints_(plan, engine,
                   [this](const std::filesystem::path& directory, const BestModel& best) {
                     write_metadata(directory);
                     reporter_.write_state_to(directory, best);
                     replace_file(directory / kHistoryFile, reporter_.history());
                   }),
      final_model_(plan, engine, [&reporter] { reporter.require_ownership(); }),
      eval_trigger_(plan.trigger(plan.flags.intervals.evaluate)) {}

void Trainer::write_metadata(const std::filesystem::path& directory) const {
  const auto& [model, chat_template] =
      std::tie(plan_.flags.model, plan_.flags.records.chat_template);
  if (plan_.adapter)
    return model::write_adapter_metadata(model, directory, plan_.adapter->texts, chat_template);
  model::write_model_metadata(model, directory, saved_dtype(plan_), chat_template);
}

int Trainer::run() {
  if (plan_.resume_plan) resume();
  const bool stopped = plan_.trains() && train();
  finish_save();
  require_finite_loss();
  const bool saves = plan_.trains() && !plan_.flags.output.empty();
  if (saves && stopped && plan_.saves_checkpoints()) {  // from which the run resumes
    save_on_interrupt(steps_done_);
    return stop_.signal_of_any_rank(engine_.mesh());
  }
  if (saves && !save_final_model()) {
    report_stop(plan_.samples.total_steps, "the model is not saved: out of disk space");
    return stop_.signal_of_any_rank(engine_.mesh());
  }
  if (!stopped) evaluate_and_save_last();
  // A signal that came while the model was saved counts, too.
  const int signal = stop_.signal_of_any_rank(engine_.mesh());
  if (plan_.trains() && !stopped && signal == 0) place_best_model();
  const BestModel& best = checkpoints_.best();
  reporter_.write_records(best, best_is_placed_ ? *best.saved_step() : plan_.samples.total_steps);
  return signal;
}

void Trainer::evaluate_and_save_last() {
  const int64_t total = plan_.samples.total_steps;
  if (plan_.samples.eval && !last_step_evaluated_ && evaluate(total)) {
    report_stop(total, plan_.flags.output.empty() ? "" : "the model is saved");
  }
  require_finite_loss();
  if (checkpoints_.due_at_end()) save_periodic(total);
  finish_save();
  confirm_checkpoints();
}

void Trainer::resume() {
  auto phase =
      reporter_.begin({.name = fmt::format("reading {}", plan_.resume_plan->checkpoint.string())});
  const CheckpointManager::ResumedCheckpoint loaded =
      checkpoints_.load([this](int64_t done, int64_t all) { reporter_.advance(done, all); });
  phase.finish();
  for (const std::string& warning : loaded.warnings) {
    reporter_.warn(fmt::format("skipped checkpoint: {}", warning));
  }
  if (!loaded.best_warning.empty()) reporter_.warn(loaded.best_warning);
  steps_done_ = loaded.step;
  evaluation_pending_ = loaded.evaluation_pending && is_evaluation_due(steps_done_);
  reporter_.resume_from(loaded.history, steps_done_);
  last_step_evaluated_ =
      steps_done_ == plan_.samples.total_steps && reporter_.has_evaluation(steps_done_);
  if (steps_done_ != plan_.resume_plan->step) {
    reporter_.warn(
        fmt::format("resumed after step {}, not {}", steps_done_, plan_.resume_plan->step));
  }
}

bool Trainer::train() {
  const comm::DeviceMesh& mesh = engine_.mesh();
  TrainDataLoader loader(
      *plan_.samples.train, plan_.sample_order(),
      plan_.train_partition(mesh.coordinate(comm::MeshDim::kDp)), plan_.config.seed,
      {.stop_requested = [this] { return stop_.signal() != 0; },
       .save_requested = [this] { return checkpoints_.is_interval_over(); },
       .on_micro_batch = [this](int64_t micro_batch) { reporter_.advance(micro_batch); }});
  loader.seek({.step = steps_done_, .sample = plan_.positions_after(steps_done_)});
  release_freed_memory();  // Reading the model has left gaps.
  reporter_.reset_step_timer();
  const bool evaluate_first = plan_.flags.intervals.evaluate_first && steps_done_ == 0;
  if ((evaluate_first || evaluation_pending_) && evaluate(steps_done_)) {
    report_stop(steps_done_, model_outcome());
    return true;
  }
  const Timer timer;
  double next_release_s = 0;
  while (steps_done_ < plan_.samples.total_steps) {
    const double begin_s = timer.seconds();
    auto phase = reporter_.begin_step(steps_done_ + 1);
    if (reporter_.traces(steps_done_ + 1)) engine_.trace_next_step();
    const engine::StepStats stats = engine_.train_batch(loader);
    phase.finish();
    steps_done_ = stats.step;
    reporter_.step(stats, loader.take_wait_s());
    const engine::StepDecision& decision = engine_.decision();
    if (!decision.failure.empty()) {
      finish_save();  // a save of earlier values
      throw Error("{}{}", decision.failure, checkpoints_.newest_good_note());
    }
    last_loss_ = {stats.loss, fmt::format("step {}", stats.step), stats.not_finite};
    if (last_loss_.is_finite()) confirm_checkpoints();
    if (decision.checkpoint_written) finish_save();
    // After the first step the optimizer's states are in place. Later, samples of many lengths
    // leave ever more gaps.
    if (timer.seconds() >= next_release_s) {
      release_freed_memory();
      const double now_s = timer.seconds();
      next_release_s =
          now_s + std::max(kReleaseIntervalS, kReleaseIntervalSteps * (now_s - begin_s));
    }
    if (evaluate_and_save(decision)) {
      report_stop(steps_done_, model_outcome());
      return true;
    }
  }
  return false;
}

bool Trainer::evaluate_and_save(const engine::StepDecision& decision) {
  const bool evaluates = is_evaluation_due(steps_done_);
  if (decision.stop_requested || (evaluates && evaluate(steps_done_))) {
    if (evaluates) checkpoints_.set_evaluation_pending();
    return true;
  }
  const bool time = decision.save_requested && steps_done_ != plan_.samples.total_steps;
  if (time || checkpoints_.due(steps_done_)) save_periodic(steps_done_);
  return false;
}

void Trainer::confirm_checkpoints() {
  for (const std::string& warning : checkpoints_.confirm()) reporter_.warn(warning);
}

void Trainer::require_finite_loss() {
  if (last_loss_.is_finite()) return;
  if (final_model_.is_saved())
    return final_model_.roll_back(last_loss_.problem(), checkpoints_.newest_good_note());
  throw Error("{}: no model is saved{}", last_loss_.problem(), checkpoints_.newest_good_note());
}

void Trainer::report_stop(int64_t step, std::string_view outcome) {
  reporter_.log_interruption({.step = step,
                              .signal = signal_name(stop_.signal_of_any_rank(engine_.mesh())),
                              .since_start_s = reporter_.clock().seconds()},
                             outcome);
}

// Returns what happens to the model if training stops now.
std::string_view Trainer::model_outcome() const {
  if (plan_.flags.output.empty()) return "without --output nothing is saved";
  return last_loss_.is_finite() ? "saving" : "nothing is saved";
}

// Returns false for the last step, which run() evaluates.
bool Trainer::is_evaluation_due(int64_t step) const {
  return step != plan_.samples.total_steps && eval_trigger_.is_due(step);
}

bool Trainer::evaluate(int64_t step) {
  const comm::DeviceMesh& mesh = engine_.mesh();
  const int64_t samples = plan_.samples.eval_size();
  const data::BatchPartition partition = plan_.eval_partition(mesh.coordinate(comm::MeshDim::kDp));
  auto phase =
      reporter_.begin({.name = step > 0 ? fmt::format("evaluation at step {}", step) : "evaluation",
                       .total = samples,
                       .counts = "{} of {} samples"});
  EvalDataLoader loader(
      *plan_.samples.eval, samples, partition,
      {.stop_requested = [this] { return stop_.signal() != 0; },
       .on_micro_batch =
           [&](int64_t batch_index) {
             reporter_.advance(std::min(batch_index * partition.global_batch(), samples));
           }});
  release_freed_memory();  // Training steps have left gaps.
  const engine::EvalStats stats = engine_.eval_batch(loader, loader.num_batches());
  release_freed_memory();  // The evaluation has left gaps.
  if (stats.stop_requested) return true;
  phase.finish();
  reporter_.log_evaluation(step, stats);
  if (step > 0) {
    checkpoints_.record_evaluation(step, stats.loss);
    engine_.evaluated(stats.loss);
  }
  if (!std::isfinite(stats.loss)) {
    last_loss_ = {stats.loss, fmt::format("the evaluation at step {}", step)};
  }
  return false;
}

void Trainer::save_periodic(int64_t step) {
  if (!last_loss_.is_finite()) {
    return reporter_.warn(fmt::format("step {} is not saved: {}", step, last_loss_.problem()));
  }
  if (checkpoints_.save_in_progress()) {
    reporter_.warn(fmt::format(
        "step {} is not saved yet: the previous checkpoint is still being written", step));
    finish_save();
  }
  const auto phase = reporter_.begin({.name = fmt::format("saving step {}", step)});
  with_failure_limit([&] {
    if (plan_.flags.state.sync) return report_saved(checkpoints_.save(step));
    checkpoints_.start(step);
  });
}

void Trainer::finish_save() {
  if (!checkpoints_.save_in_progress()) return;
  const auto phase = reporter_.begin({.name = "saving the last checkpoint"});
  with_failure_limit([&] { report_saved(checkpoints_.finish()); });
}

void Trainer::with_failure_limit(const std::function<void()>& action) {
  try {
    action();
  } catch (const checkpoint::VoteFailed& error) {
    const int64_t max_failures = plan_.flags.state.max_save_failures;
    // The model itself is saved first at the end.
    const bool model_is_next = steps_done_ == plan_.samples.total_steps && !final_model_.is_saved();
    if (++failed_saves_ >= max_failures && !model_is_next) {
      throw Error("{}; {} failed in a row{}", error.what(), pluralize(failed_saves_, "save"),
                  checkpoints_.newest_good_note());
    }
    if (final_model_.is_saved()) {
      return reporter_.warn(
          fmt::format("{}; the model is saved, but no run can resume from step {}{}", error.what(),
                      steps_done_, checkpoints_.newest_good_note()));
    }
    reporter_.warn(fmt::format("{}; the run continues, and ends if {} in a row fail", error.what(),
                               pluralize(max_failures, "save")));
  }
}

void Trainer::report_saved(const std::vector<std::string>& messages) {
  failed_saves_ = 0;
  reporter_.log_saved(messages.front());
  for (size_t i = 1; i < messages.size(); ++i) reporter_.warn(messages[i]);
}

bool Trainer::fits_grace_period(int64_t step) {
  if (!plan_.flags.state.grace_s) return true;
  const double left = *plan_.flags.state.grace_s - stop_.seconds_since_signal();
  const double needed = checkpoints_.writing_seconds();
  const bool late = needed > left;
  if (comm::max_over_ranks(late ? 1 : 0, "whether there is time to save", engine_.mesh()) == 0)
    return true;
  reporter_.warn(fmt::format(
      "step {} is not saved: writing the last one took {}, and --grace {:g} leaves {}{}", step,
      format_duration(needed), *plan_.flags.state.grace_s, format_duration(std::max(0.0, left)),
      checkpoints_.newest_good_note()));
  return false;
}

// Saves after a signal has ended the run.
void Trainer::save_on_interrupt(int64_t step) {
  if (step == 0 || checkpoints_.is_saved(step) || !fits_grace_period(step)) return;
  const auto phase = reporter_.begin({.name = fmt::format("saving step {}", step)});
  report_saved(checkpoints_.save(step));
}

void Trainer::place_best_model() {
  const BestModel& best = checkpoints_.best();
  if (!plan_.flags.intervals.ends_with_best || best.step() == plan_.samples.total_steps) return;
  if (!best.saved_step()) {
    return reporter_.log_saved("the best model was not saved: the last one is kept");
  }
  try {
    const auto phase = reporter_.begin({.name = "copying the best model"});
    final_model_.replace_with(best.directory());
  } catch (const Error& error) {  // on all ranks
    return reporter_.warn(
        fmt::format("{}: the best model is not copied, the last one is kept in {}", error.what(),
                    plan_.flags.output));
  }
  best_is_placed_ = true;
  reporter_.log_saved(fmt::format("{} has the best model now, copied from {}", plan_.flags.output,
                                  best.directory().string()));
}

bool Trainer::save_final_model() {
  double start = 0;
  const auto save = [&] {
    const auto phase = reporter_.begin({.name = fmt::format("saving {}", plan_.flags.output)});
    start = reporter_.clock().seconds();
    return final_model_.save(checkpoints_.newest_good_note());
  };
  for (std::string full = save(); !full.empty(); full = save()) {
    if (!wait_for_disk_space(full)) return false;
  }
  reporter_.log_saved(fmt::format("saved {} in {}", plan_.flags.output,
                                  format_duration(reporter_.clock().seconds() - start)));
  return true;
}

// Polls the free space. If the system always reports free room, as it does within a quota, only
// another try shows whether there is any.
bool Trainer::wait_for_disk_space(const std::string& why) {
  constexpr auto kPollInterval = std::chrono::seconds(1);
  constexpr int kPollsPerWarning = 30;
  const comm::DeviceMesh& mesh = engine_.mesh();
  const bool had_room = final_model_.has_disk_space();
  for (int poll = 0;; ++poll) {
    if (poll % kPollsPerWarning == 0) {
      reporter_.warn(
          fmt::format("{}: the model waits in memory until there is space: it needs {}. "
                      "A signal ends the run without saving it",
                      why, final_model_.disk_space_text()));
    }
    std::this_thread::sleep_for(kPollInterval);
    if (stop_.signal_of_any_rank(mesh) != 0) return false;
    const bool tries = mesh.rank() == 0 && final_model_.has_disk_space() &&
                       (!had_room || poll + 1 == kPollsPerWarning);
    if (comm::max_over_ranks(tries ? 1 : 0, "whether there is room", mesh) == 1) return true;
  }
}

}  // namespace zeroth::trainer
