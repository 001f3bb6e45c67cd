// The run itself: step after step, evaluation and checkpoints when they are due, the model at the
// end, the last evaluation, the best model in its place where that is asked for, and what is
// messages of all this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "trainer/batch_loader.h"
#include "trainer/checkpoint_manager.h"
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
  void resume();
  // Whether a signal ended it.
  bool train();
  engine::StepStats run_step(engine::Loader& loader);
  // Behind a step.
  bool evaluate_and_save(const engine::StepStats& stats);
  void observe_loss(const engine::StepStats& stats);
  void confirm_checkpoints();
  void report_stop(int64_t step, std::string_view outcome);
  std::string_view model_outcome() const;
  bool is_evaluation_due(int64_t step) const;
  // Whether a signal ended it.
  bool evaluate(int64_t step);
  void save_periodic(int64_t step);
  // Where one is under way: to its end, whatever that is.
  void finish_save();
  // What all ranks have failed in is a warning, and an Error where that was too often. What one has
  // met alone, as where an update failed that the save waits for, ends the run.
  template <typename Action>
  void with_failure_limit(Action action);
  CheckpointManager::WriteExtraFiles extra_files_writer();
  void report_saved(const std::vector<std::string>& messages);
  // Whether there is time for it before the run has to be gone; messages where there is none.
  bool fits_grace_period(int64_t step);
  void save_on_interrupt(int64_t step);
  // Whether it is saved: not where a signal came while the disk was full.
  bool save_final_model();
  // Until the disk has room again; false: a signal came before.
  bool wait_for_disk_space(const std::string& why);
  void place_best_model();
  void require_finite_loss();

  const RunPlan& plan_;
  engine::Engine& engine_;
  Reporter& reporter_;
  StopSignal& stop_;
  CheckpointManager checkpoints_;
  FinalModel final_model_;
  StepTrigger eval_trigger_;
  int64_t steps_done_ = 0;    // steps
  int64_t failed_saves_ = 0;  // in a row
  bool best_is_placed_ = false;
  bool evaluation_pending_ = false;   // the run before, after its last step
  bool last_step_evaluated_ = false;  // the last step, by the run before
  std::string loss_problem_;          // what is wrong with it; empty when it is finite
};

}  // namespace zeroth::trainer
