// The run itself: step after step, evaluation when it is due, the model at the end, the last
// evaluation, the best model in its place where that is asked for, and what is told of all this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "trainer/batch_loader.h"
#include "trainer/checkpoints.h"
#include "trainer/report/reporter.h"
#include "trainer/run_plan.h"
#include "trainer/stop_signal.h"

namespace zeroth::trainer {

// Collective: every rank runs the same plan. Keeps references to all that it is given.
class Trainer {
 public:
  Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop);

  // Returns 0, or the signal that ended the run early, after its step and with the model saved; the
  // same on all ranks. Throws an Error when the last loss or a parameter is not finite: a model of
  // before stands in its place then.
  int run();

 private:
  // Whether a signal ended it.
  bool train();
  void saw(const engine::StepStats& stats);
  void report_stop(int64_t step, std::string_view outcome);
  std::string_view fate_of_model() const;
  bool evaluation_due(int64_t step) const;
  // Whether a signal ended it.
  bool evaluate(int64_t step);
  void save_on_the_way(int64_t step);
  void save_final();
  void place_best();
  void require_finite_loss();

  const RunPlan& plan_;
  engine::Engine& engine_;
  Reporter& reporter_;
  StopSignal& stop_;
  Checkpoints checkpoints_;
  Occasions evaluations_;
  std::string last_loss_;  // what is wrong with it; empty when it is finite
};

}  // namespace zeroth::trainer
