#include "trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/replace_file.h"
#include "base/units.h"
#include "checkpoint/ranks.h"
#include "comm/agreement.h"
#include "comm/mesh.h"
#include "model/hf/model_layout.h"
#include "trainer/report/history.h"

namespace zeroth::trainer {

Trainer::Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop)
    : plan_(plan),
      engine_(engine),
      reporter_(reporter),
      stop_(stop),
      checkpoints_(plan, engine),
      final_(plan, engine, [&reporter] { reporter.require_ours(); }),
      evaluations_(plan.occasions(plan.flags.cadences.evaluate)) {}

int Trainer::run() {
  const int64_t total = plan_.samples.total_steps;
  if (plan_.resumed) go_on();
  const bool stopped = plan_.samples.train && train();
  finish_save();
  require_finite_loss();
  const bool saves = plan_.trains() && !plan_.flags.output.empty();
  if (saves && stopped && plan_.saves_checkpoints()) {
    save_what_is_left(done_);
    return stop_.of_all_ranks(engine_.mesh());
  }
  if (saves && !save_final()) {
    report_stop(total, "the model is not saved, for lack of room");
    return stop_.of_all_ranks(engine_.mesh());
  }
  if (plan_.samples.eval && !stopped && !is_evaluated_ && evaluate(total)) {
    report_stop(total, plan_.flags.output.empty() ? "" : "the model is saved");
  }
  require_finite_loss();
  if (saves && !stopped && checkpoints_.due_at_end()) save_on_the_way(total);
  finish_save();
  if (saves && !stopped) confirm();
  // One that came while the model was saved counts too.
  const int signal = stop_.of_all_ranks(engine_.mesh());
  if (plan_.trains() && !stopped && signal == 0) place_best();
  reporter_.record(checkpoints_.best(),
                   best_is_placed_ ? *checkpoints_.best().saved_step() : total);
  return signal;
}

void Trainer::go_on() {
  auto phase =
      reporter_.begin({.name = fmt::format("reading {}", plan_.resumed->checkpoint.string())});
  const Checkpoints::Loaded loaded =
      checkpoints_.load([this](int64_t done, int64_t all) { reporter_.advance(done, all); });
  phase.finish();
  for (const std::string& warning : loaded.warnings) {
    reporter_.warn(fmt::format("passed by: {}", warning));
  }
  if (!loaded.best_warning.empty()) reporter_.warn(loaded.best_warning);
  done_ = loaded.step;
  owes_evaluation_ = loaded.owes_evaluation && evaluation_due(done_);
  reporter_.go_on_from(loaded.history, done_);
  is_evaluated_ = done_ == plan_.samples.total_steps && reporter_.has_evaluation(done_);
  if (done_ != plan_.resumed->step) {
    reporter_.warn(fmt::format("goes on behind step {} instead of {}", done_, plan_.resumed->step));
  }
}

bool Trainer::train() {
  const comm::Mesh& mesh = engine_.mesh();
  TrainLoader loader(*plan_.samples.train, plan_.sample_order(),
                     plan_.train_deal(mesh.coordinate(comm::Axis::kData)), plan_.config.seed,
                     {.wants_end = [this] { return stop_.number() != 0; },
                      .wants_save = [this] { return checkpoints_.time_is_up(); },
                      .begins = [this](int64_t micro_batch) { reporter_.advance(micro_batch); }});
  loader.seek({.step = done_, .sample = plan_.positions_after(done_)});
  reporter_.resume();
  const bool first = plan_.flags.cadences.evaluate_first && done_ == 0;
  if ((first || owes_evaluation_) && evaluate(done_)) {
    report_stop(done_, fate_of_model());
    return true;
  }
  while (done_ < plan_.samples.total_steps) {
    const engine::StepStats stats = run_step(loader);
    done_ = stats.step;
    reporter_.step(stats);
    if (!stats.failure.empty()) {
      finish_save();  // of values from before
      throw Error("{}{}", stats.failure, checkpoints_.newest_good());
    }
    saw(stats);
    if (stats.checkpoint_written) finish_save();
    if (evaluate_and_save(stats)) {
      report_stop(done_, fate_of_model());
      return true;
    }
  }
  return false;
}

engine::StepStats Trainer::run_step(engine::Loader& loader) {
  auto phase = reporter_.begin_step(done_ + 1);
  engine::StepStats stats = engine_.train_batch(loader);
  phase.finish();
  return stats;
}

bool Trainer::evaluate_and_save(const engine::StepStats& stats) {
  const bool evaluates = evaluation_due(stats.step);
  if (stats.end_wanted || (evaluates && evaluate(stats.step))) {
    if (evaluates) checkpoints_.owe_evaluation();
    return true;
  }
  const bool time = stats.save_wanted && stats.step != plan_.samples.total_steps;
  if (time || checkpoints_.due(stats.step)) save_on_the_way(stats.step);
  return false;
}

void Trainer::saw(const engine::StepStats& stats) {
  last_loss_.clear();
  if (std::isfinite(stats.loss)) return confirm();
  last_loss_ =
      fmt::format("the loss of step {} is {}", stats.step, without_sign_of_nan(stats.loss));
  if (!stats.not_finite.empty()) {
    last_loss_ += fmt::format(" and gradients are not finite {}", stats.not_finite);
  }
}

void Trainer::confirm() {
  for (const std::string& warning : checkpoints_.confirm()) reporter_.warn(warning);
}

void Trainer::require_finite_loss() {
  if (last_loss_.empty()) return;
  if (final_.is_saved()) return final_.withdraw(last_loss_, checkpoints_.newest_good());
  throw Error("{}: no model is saved{}", last_loss_, checkpoints_.newest_good());
}

void Trainer::report_stop(int64_t step, std::string_view outcome) {
  const auto signal = stop_.of_all_ranks(engine_.mesh());
  reporter_.interrupted(
      {.step = step, .signal = signal_name(signal), .since_start_s = reporter_.clock().seconds()},
      outcome);
}

// Where training stops now.
std::string_view Trainer::fate_of_model() const {
  if (plan_.flags.output.empty()) return "without --output nothing is saved";
  return last_loss_.empty() ? "saving" : "nothing is saved";
}

// The last step's evaluation belongs to run().
bool Trainer::evaluation_due(int64_t step) const {
  return step != plan_.samples.total_steps && evaluations_.at(step);
}

bool Trainer::evaluate(int64_t step) {
  const comm::Mesh& mesh = engine_.mesh();
  const int64_t samples = plan_.samples.eval_samples;
  const data::Deal deal = plan_.eval_deal(mesh.coordinate(comm::Axis::kData));
  auto phase =
      reporter_.begin({.name = step > 0 ? fmt::format("evaluation at step {}", step) : "evaluation",
                       .total = samples,
                       .counts = "{} of {} samples"});
  EvalLoader loader(*plan_.samples.eval, samples, deal,
                    {.wants_end = [this] { return stop_.number() != 0; },
                     .begins =
                         [&](int64_t round) {
                           reporter_.advance(std::min(round * deal.global_batch(), samples));
                         }});
  const engine::EvalStats stats = engine_.eval_batch(loader, loader.rounds());
  if (stats.end_wanted) return true;
  phase.finish();
  reporter_.evaluated(step, stats);
  if (step > 0) {
    checkpoints_.evaluated(step, stats.loss);
    engine_.evaluated(stats.loss);
  }
  if (!std::isfinite(stats.loss)) {
    last_loss_ = fmt::format("the loss of the evaluation at step {} is {}", step,
                             without_sign_of_nan(stats.loss));
  }
  return false;
}

void Trainer::save_on_the_way(int64_t step) {
  if (!last_loss_.empty()) {
    return reporter_.warn(fmt::format("step {} is not saved: {}", step, last_loss_));
  }
  if (checkpoints_.under_way()) {
    reporter_.warn(fmt::format("step {} waits to be saved: the one before is still written", step));
    finish_save();
  }
  const auto phase = reporter_.begin({.name = fmt::format("saving step {}", step)});
  counting_failures([&] {
    if (plan_.flags.state.sync) return tell_saved(checkpoints_.save(step, more_to_write()));
    checkpoints_.start(step, more_to_write());
  });
}

void Trainer::finish_save() {
  if (!checkpoints_.under_way()) return;
  const auto phase = reporter_.begin({.name = "saving the last checkpoint"});
  counting_failures([&] { tell_saved(checkpoints_.finish()); });
}

template <typename Action>
void Trainer::counting_failures(Action action) {
  try {
    action();
  } catch (const checkpoint::Refused& error) {
    const int64_t most = plan_.flags.state.most_failures;
    // At the end the model itself comes first.
    const bool model_is_next = done_ == plan_.samples.total_steps && !final_.is_saved();
    if (++failed_saves_ >= most && !model_is_next) {
      throw Error("{}; {} in a row{}", error.what(), counted(failed_saves_, "save"),
                  checkpoints_.newest_good());
    }
    if (final_.is_saved()) {
      return reporter_.warn(fmt::format("{}; the model is saved, and no run goes on from step {}{}",
                                        error.what(), done_, checkpoints_.newest_good()));
    }
    reporter_.warn(fmt::format("{}; the run goes on, and ends where {} in a row fail", error.what(),
                               counted(most, "save")));
  }
}

Checkpoints::WriteMore Trainer::more_to_write() {
  return [this](const std::filesystem::path& folder, const BestModel& best) {
    model::write_descriptions(plan_.flags.model, folder, saved_dtype(plan_));
    reporter_.record_into(folder, best);
    replace_file(folder / kHistoryFile, reporter_.history());
  };
}

void Trainer::tell_saved(const std::vector<std::string>& told) {
  failed_saves_ = 0;
  reporter_.saved(told.front());
  for (size_t i = 1; i < told.size(); ++i) reporter_.warn(told[i]);
}

bool Trainer::fits_grace(int64_t step) {
  if (!plan_.flags.state.grace_s) return true;
  const double left = *plan_.flags.state.grace_s - stop_.seconds_since();
  const double needed = checkpoints_.writing_seconds();
  const bool late = needed > left;
  if (comm::greatest_over_ranks(late ? 1 : 0, "whether there is time to save", engine_.mesh()) == 0)
    return true;
  reporter_.warn(fmt::format(
      "step {} is not saved: writing the last one took {}, and --grace {:g} leaves {}{}", step,
      format_duration(needed), *plan_.flags.state.grace_s, format_duration(std::max(0.0, left)),
      checkpoints_.newest_good()));
  return false;
}

// Where a signal has ended the run.
void Trainer::save_what_is_left(int64_t step) {
  if (step == 0 || checkpoints_.saved(step) || !fits_grace(step)) return;
  const auto phase = reporter_.begin({.name = fmt::format("saving step {}", step)});
  tell_saved(checkpoints_.save(step, more_to_write()));
}

void Trainer::place_best() {
  const BestModel& best = checkpoints_.best();
  if (!plan_.flags.cadences.ends_with_best || best.step() == plan_.samples.total_steps) return;
  if (!best.saved_step()) {
    return reporter_.saved("the best model was not saved: the last one stays");
  }
  try {
    const auto phase = reporter_.begin({.name = "copying the best model"});
    final_.replace_by(best.folder());
  } catch (const Error& error) {  // on all ranks
    return reporter_.warn(fmt::format("{}: the best model is not placed, the last one stays in {}",
                                      error.what(), plan_.flags.output));
  }
  best_is_placed_ = true;
  reporter_.saved(fmt::format("{} holds the best model now, that of {}", plan_.flags.output,
                              best.folder().string()));
}

bool Trainer::save_final() {
  double start = 0;
  const auto save = [&] {
    const auto phase = reporter_.begin({.name = fmt::format("saving {}", plan_.flags.output)});
    start = reporter_.clock().seconds();
    return final_.save(checkpoints_.newest_good());
  };
  for (std::string full = save(); !full.empty(); full = save()) {
    if (!wait_for_room(full)) return false;
  }
  reporter_.saved(fmt::format("saved {} in {}", plan_.flags.output,
                              format_duration(reporter_.clock().seconds() - start)));
  return true;
}

// Where the system reports free room all the time, as it does within a quota, only another try
// shows whether there is any.
bool Trainer::wait_for_room(const std::string& why) {
  constexpr auto kLook = std::chrono::seconds(1);
  constexpr int kLooksForLine = 30;
  const comm::Mesh& mesh = engine_.mesh();
  const bool had_room = final_.has_room();
  for (int look = 0;; ++look) {
    if (look % kLooksForLine == 0) {
      reporter_.warn(
          fmt::format("{}: the model waits in memory until there is room: it takes {}. "
                      "A signal ends the run without it",
                      why, final_.room_text()));
    }
    std::this_thread::sleep_for(kLook);
    if (stop_.of_all_ranks(mesh) != 0) return false;
    const bool tries =
        mesh.rank() == 0 && final_.has_room() && (!had_room || look + 1 == kLooksForLine);
    if (comm::greatest_over_ranks(tries ? 1 : 0, "whether there is room", mesh) == 1) return true;
  }
}

}  // namespace zeroth::trainer
