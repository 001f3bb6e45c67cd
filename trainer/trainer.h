// The training loop: step after step, evaluations and checkpoints when they are due, the model at
// the end, the last evaluation, the best model in its place if requested, and the messages about
// all of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "trainer/checkpoint_manager.h"
#include "trainer/output.h"
#include "trainer/report/reporter.h"
#include "trainer/step_trigger.h"
#include "trainer/stop_signal.h"

namespace zeroth::trainer {

struct RunPlan;

// Trainer runs the loop. Collective: every rank runs the same plan. Keeps references to all
// arguments.
class Trainer {
 public:
  Trainer(const RunPlan& plan, engine::Engine& engine, Reporter& reporter, StopSignal& stop);

  // Returns 0, or the signal that ended the run early; the same on all ranks. After a signal the
  // step is finished and a checkpoint saved, or the model if the run has no checkpoints. Throws an
  // Error if the last loss or a parameter is not finite; an earlier model is in place then.
  int run();

 private:
  // The loss of the last step, or of an evaluation after it that was not finite.
  struct LastLoss {
    double value = 0;
    std::string source = {};      // "step 3"
    std::string not_finite = {};  // StepStats::not_finite

    bool is_finite() const { return std::isfinite(value); }
    // Returns what is wrong with a loss that is not finite.
    std::string problem() const;
  };

  // Writes what is beside the weights in a checkpoint's directory.
  void write_metadata(const std::filesystem::path& directory) const;
  // Evaluates the trained model, and saves the checkpoint from which a longer run can resume.
  void evaluate_and_save_last();
  // Resumes after the steps of the previous run, if there was one.
  void resume();
  // Returns whether a signal ended it.
  bool train();
  // Evaluates and saves what is due after a step. Returns whether a signal ended the training.
  bool evaluate_and_save(const engine::StepDecision& decision);
  void confirm_checkpoints();
  void report_stop(int64_t step, std::string_view outcome);
  std::string_view model_outcome() const;
  bool is_evaluation_due(int64_t step) const;
  // Returns whether a signal ended it.
  bool evaluate(int64_t step);
  void save_periodic(int64_t step);
  // Completes a save in progress, with either outcome.
  void finish_save();
  // Runs a save. A failure on all ranks is a warning, and an Error if there were too many. A
  // failure on one rank alone, such as a failed update that the save waits for, ends the run.
  void with_failure_limit(const std::function<void()>& action);
  void report_saved(const std::vector<std::string>& messages);
  // Returns whether there is time for a save before the run has to end; reports it if there is
  // none.
  bool fits_grace_period(int64_t step);
  void save_on_interrupt(int64_t step);
  // Returns whether the model is saved: not if a signal came while the disk was full.
  bool save_final_model();
  // Blocks until the disk has room again; returns false if a signal came first.
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
  int64_t steps_done_ = 0;
  int64_t failed_saves_ = 0;  // in a row
  bool best_is_placed_ = false;
  bool evaluation_pending_ = false;   // of the previous run, after its last step
  bool last_step_evaluated_ = false;  // by the previous run
  LastLoss last_loss_;
};

}  // namespace zeroth::trainer
