// The checkpoints of a run: when they are due, which of them are good, which one is the best, and
// how one is loaded.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "trainer/best_model.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Saving, loading and confirm() are collective.
class CheckpointManager {
 public:
  // What belongs beside the states of a checkpoint: written into its folder, on rank 0. `best`: as
  // it is once this one is saved.
  using WriteExtraFiles =
      std::function<void(const std::filesystem::path& directory, const BestModel& best)>;

  CheckpointManager(const RunPlan& plan, engine::Engine& engine);

  // Goes on from plan.resume_plan, or from the newest one before it whose bytes are those that were
  // written. To be called once, before all else. Throws an Error where
  // it is of another run.
  struct ResumedCheckpoint {
    int64_t step = 0;
    std::filesystem::path path;
    std::string history;  // rank 0: what WriteExtraFiles wrote as kHistoryFile
    bool evaluation_pending = false;
    std::vector<std::string> warnings;
    std::string best_warning = {};  // rank 0: the best model's checkpoint is not where it was
  };
  ResumedCheckpoint load(engine::OnRead on_read = {});

  // Whether one is to be saved after this step.
  bool due(int64_t step) const;
  // The same for the last step, after which a longer run may go on.
  bool due_at_end() const;
  // For the time since the last one (--save-minutes), as this rank's clock has it.
  bool is_interval_over() const;
  // Takes note of an evaluation; comes before due() of its step.
  void record_evaluation(int64_t step, double loss);
  // A signal has left out the evaluation that was due: the run that goes on makes up for it.
  void set_evaluation_pending() { evaluation_pending_ = true; }

  // Returns what to tell. The checkpoint is good once confirm() is called: the model may be what
  // nobody can train on, and until that is known those before it stay. An Error where it could not
  // be saved; the run may go on. None is under way.
  std::vector<std::string> save(int64_t step, const WriteExtraFiles& write_extra_files);
  // The same while training goes on, up to finish(), which returns what to tell.
  void start(int64_t step, const WriteExtraFiles& write_extra_files);
  std::vector<std::string> finish();
  bool save_in_progress() const { return engine_.has_pending_checkpoint(); }
  // A later step had a finite loss. Of the good ones the newest stay, as many as are to be kept,
  // and the best. Returns what went wrong.
  std::vector<std::string> confirm();

  // Also one that is under way.
  bool is_saved(int64_t step) const { return last_saved_ == step; }
  // What the last one that was saved took to write, beside training or not, rather than what it
  // held training up, or the time until training came to its end; 0: none was.
  double writing_seconds() const { return writing_seconds_; }
  const BestModel& best() const { return best_; }
  // "; the newest good model is out/checkpoints/step-8", or empty.
  std::string newest_good_note() const;
  std::filesystem::path checkpoint_directory(int64_t step) const;

 private:
  std::vector<std::string> complete_save(const engine::SavedCheckpoint& done);
  engine::CheckpointRequest request(int64_t step, const WriteExtraFiles& write_extra_files) const;
  void restore(const engine::ClientState& state);
  void locate_best_model(ResumedCheckpoint& loaded);
  int64_t max_kept() const;
  std::set<int64_t> protected_steps() const;

  const RunPlan& plan_;
  engine::Engine& engine_;
  std::filesystem::path directory_;  // "out/checkpoints"
  StepTrigger save_trigger_;
  BestModel best_;
  std::deque<int64_t> good_steps_;  // steps
  std::vector<int64_t> unconfirmed_steps_;
  std::optional<int64_t> last_saved_;
  bool confirm_after_save_ = false;  // the one that is under way
  bool evaluation_pending_ = false;
  double writing_seconds_ = 0;
  std::chrono::steady_clock::time_point last_start_, last_end_;
};

}  // namespace zeroth::trainer
