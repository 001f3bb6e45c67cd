#include "trainer/trainer.h"

#include "base/error.h"
#include "base/units.h"
#include "trainer/hf_output.h"
#include "trainer/peak_memory.h"

namespace zeroth::trainer {

Trainer::Trainer(const RunPlan& plan, engine::Engine& engine, Reports reports)
    : plan_(plan), engine_(engine), reports_(reports) {}

void Trainer::run() {
  if (plan_.train) train();
  if (plan_.eval) evaluate(plan_.total_steps);
  if (!plan_.flags.output.empty()) save();
}

void Trainer::train() {
  const comm::Mesh& mesh = engine_.mesh();
  const uint64_t seed = plan_.config.seed;
  TrainLoader loader(
      *plan_.train,
      data::SampleOrder(plan_.train->size(), seed, plan_.flags.shuffle, plan_.train_samples),
      plan_.train_deal(mesh.rank(), mesh.world_size()), seed);
  last_end_s_ = reports_.clock.seconds();
  for (int64_t step = 1; step <= plan_.total_steps; ++step) {
    const engine::StepStats stats = engine_.train_batch(loader);
    report(stats);
    if (!stats.failure.empty()) throw Error(stats.failure);
    if (evaluation_due(step)) evaluate(step);
  }
}

void Trainer::report(const engine::StepStats& stats) {
  const double now = reports_.clock.seconds();
  const StepRow row{
      .stats = stats,
      .step_s = now - last_end_s_,
      .since_start_s = now,
      .peak = plan_.flags.metrics.empty() ? PeakMemory{} : largest_peak_memory(engine_.mesh())};
  last_end_s_ = now;
  reports_.metrics.write(to_json(row));
  reports_.progress.step(row);
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
  const engine::EvalStats stats = engine_.eval_batch(loader, loader.rounds());
  const EvalRow row{.step = step,
                    .eval_loss = stats.loss,
                    .eval_tokens = stats.trained_tokens,
                    .since_start_s = reports_.clock.seconds()};
  reports_.metrics.write(to_json(row));
  reports_.progress.evaluation(row);
}

void Trainer::save() {
  const double start = reports_.clock.seconds();
  HfOutput output(plan_.flags, plan_.spec);
  engine_.save_model(output);
  output.finish();
  comm::barrier(engine_.mesh());
  reports_.progress.line(fmt::format("saved {} in {}", plan_.flags.output,
                                     format_duration(reports_.clock.seconds() - start)));
}

}  // namespace zeroth::trainer
