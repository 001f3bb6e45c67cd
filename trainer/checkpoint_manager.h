// The checkpoints of a run: when they are due, which of them are good, which one is the best, and
// how one is loaded.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/machine/timer.h"
#include "engine/engine.h"
#include "trainer/best_model.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer {

struct RunPlan;

// CheckpointManager saves and loads a run's checkpoints. Saving, loading and confirm() are
// collective.
class CheckpointManager {
 public:
  // Writes auxiliary files beside the states of a checkpoint into its directory, on rank 0. `best`:
  // the best model once this checkpoint is saved.
  using WriteExtraFiles =
      std::function<void(const std::filesystem::path& directory, const BestModel& best)>;

  CheckpointManager(const RunPlan& plan, engine::Engine& engine, WriteExtraFiles write_extra_files);

  // Result of load().
  struct ResumedCheckpoint {
    int64_t step = 0;
    std::filesystem::path path;
    std::string history;  // rank 0: what WriteExtraFiles wrote as kHistoryFile
    bool evaluation_pending = false;
    std::vector<std::string> warnings;
    std::string best_warning = {};  // rank 0: the best model's checkpoint is not where it was
  };
  // Loads plan.resume_plan, or the newest checkpoint before it whose bytes are undamaged. Must be
  // called once, before all else. Throws an Error if the checkpoint is of another run.
  ResumedCheckpoint load(engine::OnRead on_read = {});

  // Returns whether a checkpoint is due after this step; never after the last one.
  bool due(int64_t step) const;
  // Returns whether a checkpoint is due after the last step, from which a longer run can resume.
  bool due_at_end() const;
  // Returns whether --save-minutes have passed since the last save, by this rank's clock.
  bool is_interval_over() const;
  // Records an evaluation; must be called before due() of its step.
  void record_evaluation(int64_t step, double loss);
  // Records that a signal skipped a due evaluation: a resumed run makes up for it.
  void set_evaluation_pending() { evaluation_pending_ = true; }

  // Saves a checkpoint and returns messages to report. The checkpoint counts as good after
  // confirm(): its model may be unusable, and until that is known the earlier ones are kept. Throws
  // an Error if it cannot be saved; the run may continue. Requires that no save is in progress.
  std::vector<std::string> save(int64_t step);
  // Starts a save that continues during training; finish() completes it and returns messages to
  // report.
  void start(int64_t step);
  std::vector<std::string> finish();
  bool save_in_progress() const { return engine_.has_pending_checkpoint(); }
  // Confirms that a later step had a finite loss. Keeps the configured number of the newest good
  // checkpoints, and the best one. Returns warnings.
  std::vector<std::string> confirm();

  // Returns whether `step` is saved, or being saved.
  bool is_saved(int64_t step) const { return last_saved_ == step; }
  // Returns the seconds that writing the last checkpoint took, during training or not; this is
  // neither the time that training was blocked nor the time until training ended. Returns 0 if none
  // was saved.
  double writing_seconds() const { return writing_seconds_; }
  const BestModel& best() const { return best_; }
  // Returns "; the newest good model is out/checkpoints/step-8", or an empty text.
  std::string newest_good_note() const;
  std::filesystem::path checkpoint_directory(int64_t step) const;

 private:
  // Returns whether a checkpoint is saved if an evaluation is the best so far.
  bool saves_best() const;
  std::vector<std::string> complete_save(const engine::SavedCheckpoint& done);
  engine::CheckpointRequest request(int64_t step) const;
  void locate_best_model(ResumedCheckpoint& loaded);
  int64_t save_total_limit() const;
  std::set<int64_t> protected_steps() const;

  const RunPlan& plan_;
  engine::Engine& engine_;
  WriteExtraFiles write_extra_files_;
  std::filesystem::path directory_;  // "out/checkpoints"
  StepTrigger save_trigger_;
  BestModel best_;
  std::deque<int64_t> good_steps_;  // steps of good checkpoints
  std::vector<int64_t> unconfirmed_steps_;
  std::optional<int64_t> last_saved_;
  bool confirm_after_save_ = false;  // confirm() was called during the current save
  bool evaluation_pending_ = false;
  double writing_seconds_ = 0;
  Timer since_start_, since_end_;  // of the last save
};

}  // namespace zeroth::trainer
