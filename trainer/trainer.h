// The run itself: step after step, evaluation and checkpoints when they are due, the model at the
// end, the last evaluation, the best model in its place where that is asked for, and what is told
// of all this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "trainer/batch_loader.h"
#include "trainer/checkpoints.h"
#include "trainer/output.h"
#include "trainer/report/reporter.h"
#include "trainer/run_plan.h"
#include "trainer/stop_signal.h"

namespace zeroth::trainer {

// Collective: every rank runs the same plan. Keeps references to all that it is given.
class Trainer {
 public:
  Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop);

  // Returns 0, or the signal that ended the run early, after its step and with a checkpoint, or
  // where the run has none the model, saved; the same on all ranks. Throws an Error when the last
  // loss or a parameter is not finite: a model of before stands in its place then.
  int run();

 private:
  // Behind the steps of the run before, if there was one.
  void go_on();
  // Whether a signal ended it.
  bool train();
  engine::StepStats run_step(engine::Loader& loader);
  // Behind a step.
  bool evaluate_and_save(const engine::StepStats& stats);
  void saw(const engine::StepStats& stats);
  void confirm();
  void report_stop(int64_t step, std::string_view outcome);
  std::string_view fate_of_model() const;
  bool evaluation_due(int64_t step) const;
  // Whether a signal ended it.
  bool evaluate(int64_t step);
  void save_on_the_way(int64_t step);
  // Where one is under way: to its end, whatever that is.
  void finish_save();
  // What all ranks have failed in is a warning, and an Error where that was too often. What one has
  // met alone, as where an update failed that the save waits for, ends the run.
  template <typename Action>
  void counting_failures(Action action);
  Checkpoints::WriteMore more_to_write();
  void tell_saved(const std::vector<std::string>& told);
  // Whether there is time for it before the run has to be gone; told where there is none.
  bool fits_grace(int64_t step);
  void save_what_is_left(int64_t step);
  // Whether it is saved: not where a signal came while the disk was full.
  bool save_final();
  // Until the disk has room again; false: a signal came before.
  bool wait_for_room(const std::string& why);
  void place_best();
  void require_finite_loss();

  const RunPlan& plan_;
  engine::Engine& engine_;
  Reporter& reporter_;
  StopSignal& stop_;
  Checkpoints checkpoints_;
  FinalModel final_;
  Occasions evaluations_;
  int64_t done_ = 0;          // steps
  int64_t failed_saves_ = 0;  // in a row
  bool best_is_placed_ = false;
  bool owes_evaluation_ = false;  // the run before, after its last step
  bool is_evaluated_ = false;     // the last step, by the run before
  std::string last_loss_;         // what is wrong with it; empty when it is finite
};

}  // namespace zeroth::trainer
