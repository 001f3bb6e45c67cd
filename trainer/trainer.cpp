#include "trainer/trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "trainer/checkpoints.h"

namespace zeroth::trainer {

Trainer::Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop)
    : plan_(plan),
      engine_(engine),
      reporter_(reporter),
      stop_(stop),
      checkpoints_(plan, engine),
      evaluations_(plan.occasions(plan.flags.cadences.evaluate)) {}

int Trainer::run() {
  const bool stopped = plan_.samples.train && train();
  require_finite_loss();
  if (plan_.trains() && !plan_.flags.output.empty()) save_final();
  if (plan_.samples.eval && !stopped && evaluate(plan_.samples.total_steps)) {
    report_stop(plan_.samples.total_steps, plan_.flags.output.empty() ? "" : "the model is saved");
  }
  require_finite_loss();
  // One that came while the model was saved counts too.
  const int signal = stop_.of_all_ranks(engine_.mesh());
  if (plan_.trains() && !stopped && signal == 0) place_best();
  reporter_.record(checkpoints_.best(), checkpoints_.final_step());
  return signal;
}

bool Trainer::train() {
  const comm::Mesh& mesh = engine_.mesh();
  const uint64_t seed = plan_.config.seed;
  TrainLoader loader(*plan_.samples.train, plan_.sample_order(), plan_.train_deal(mesh.rank()),
                     seed, [this] { return stop_.number() != 0; });
  reporter_.resume();
  if (plan_.flags.cadences.evaluate_first && evaluate(0)) {
    report_stop(0, fate_of_model());
    return true;
  }
  for (int64_t step = 1; step <= plan_.samples.total_steps; ++step) {
    const engine::StepStats stats = engine_.train_batch(loader);
    reporter_.step(stats);
    if (!stats.failure.empty()) throw Error("{}{}", stats.failure, checkpoints_.newest_good());
    saw(stats);
    if (stats.end_wanted || (evaluation_due(step) && evaluate(step))) {
      report_stop(step, fate_of_model());
      return true;
    }
    if (checkpoints_.due(step)) save_on_the_way(step);
  }
  return false;
}

void Trainer::saw(const engine::StepStats& stats) {
  last_loss_.clear();
  if (std::isfinite(stats.loss)) return checkpoints_.confirm();
  last_loss_ =
      fmt::format("the loss of step {} is {}", stats.step, without_sign_of_nan(stats.loss));
  if (!stats.not_finite.empty()) {
    last_loss_ += fmt::format(" and gradients are not finite {}", stats.not_finite);
  }
}

void Trainer::require_finite_loss() {
  if (last_loss_.empty()) return;
  if (checkpoints_.saved_final()) return checkpoints_.withdraw_final(last_loss_);
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
  EvalLoader loader(*plan_.samples.eval, plan_.samples.eval_samples, plan_.eval_deal(mesh.rank()),
                    [this] { return stop_.number() != 0; });
  const engine::EvalStats stats = engine_.eval_batch(loader, loader.rounds());
  if (stats.end_wanted) return true;
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
  const double start = reporter_.clock().seconds();
  const auto folder = checkpoints_.save_step(step);
  reporter_.record_into(folder, checkpoints_.best());
  reporter_.saved(fmt::format("saved {} in {}: weights, not the state of the optimizer yet",
                              folder.string(),
                              format_duration(reporter_.clock().seconds() - start)));
}

void Trainer::place_best() {
  const std::string told = checkpoints_.place_best();
  if (!told.empty()) reporter_.saved(told);
}

void Trainer::save_final() {
  const double start = reporter_.clock().seconds();
  checkpoints_.save_final();
  reporter_.saved(fmt::format("saved {} in {}", plan_.flags.output,
                              format_duration(reporter_.clock().seconds() - start)));
}

}  // namespace zeroth::trainer
