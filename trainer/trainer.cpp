#include "trainer/trainer.h"

#include <fmt/format.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "trainer/agreement.h"

namespace zeroth::trainer {

Trainer::Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop)
    : plan_(plan), engine_(engine), reporter_(reporter), stop_(stop), checkpoints_(plan, engine) {}

int Trainer::run() {
  const bool stopped = plan_.train && train();
  if (plan_.eval && !stopped) evaluate(plan_.total_steps);
  if (!plan_.flags.output.empty()) save_final();
  // One that came during the last evaluation or while the model was saved counts too.
  return static_cast<int>(greatest(engine_.mesh(), stop_.number(), "stop signal"));
}

bool Trainer::train() {
  const comm::Mesh& mesh = engine_.mesh();
  const uint64_t seed = plan_.config.seed;
  TrainLoader loader(*plan_.train, plan_.sample_order(),
                     plan_.train_deal(mesh.rank(), mesh.world_size()), seed,
                     [this] { return stop_.number() != 0; });
  stop_.heed();
  reporter_.resume();
  for (int64_t step = 1; step <= plan_.total_steps; ++step) {
    const engine::StepStats stats = engine_.train_batch(loader);
    reporter_.step(stats);
    if (!stats.failure.empty()) throw Error(stats.failure);
    if (stats.end_wanted) {
      report_stop(step);
      return true;
    }
    if (evaluation_due(step)) evaluate(step);
    if (checkpoints_.due(step)) save_on_the_way(step);
  }
  return false;
}

void Trainer::report_stop(int64_t step) {
  const auto signal = static_cast<int>(greatest(engine_.mesh(), stop_.number(), "stop signal"));
  reporter_.interrupted({.step = step,
                         .signal = fmt::format("SIG{}", ::sigabbrev_np(signal)),
                         .since_start_s = reporter_.clock().seconds()});
}

// The last step's evaluation belongs to run().
bool Trainer::evaluation_due(int64_t step) const {
  const auto& every = plan_.flags.eval_every;
  return every && step % *every == 0 && step != plan_.total_steps;
}

void Trainer::evaluate(int64_t step) {
  const comm::Mesh& mesh = engine_.mesh();
  EvalLoader loader(*plan_.eval, plan_.eval_samples,
                    plan_.eval_deal(mesh.rank(), mesh.world_size()));
  reporter_.evaluated(step, engine_.eval_batch(loader, loader.rounds()));
}

void Trainer::save_on_the_way(int64_t step) {
  const double start = reporter_.clock().seconds();
  const auto folder = checkpoints_.save_step(step);
  reporter_.saved(fmt::format("saved {} in {}: weights, not the state of the optimizer yet",
                              folder.string(),
                              format_duration(reporter_.clock().seconds() - start)));
}

void Trainer::save_final() {
  const double start = reporter_.clock().seconds();
  checkpoints_.save_final();
  reporter_.saved(fmt::format("saved {} in {}", plan_.flags.output,
                              format_duration(reporter_.clock().seconds() - start)));
}

}  // namespace zeroth::trainer
