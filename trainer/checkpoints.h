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
class Checkpoints {
 public:
  // What belongs beside the states of a checkpoint: written into its folder, on rank 0. `best`: as
  // it is once this one is saved.
  using WriteMore = std::function<void(const std::filesystem::path& folder, const BestModel& best)>;

  Checkpoints(const RunPlan& plan, engine::Engine& engine);

  // Goes on from plan.resumed, or from the newest one before it whose bytes are those that were
  // written. To be called once, before all else. Throws an Error where
  // it is of another run.
  struct Loaded {
    int64_t step = 0;
    std::filesystem::path path;
    std::string history;  // rank 0: what WriteMore wrote as kHistoryFile
    bool owes_evaluation = false;
    std::vector<std::string> warnings;
    std::string best_warning = {};  // rank 0: the best model's checkpoint is not where it was
  };
  Loaded load(engine::OnRead on_read = {});

  // Whether one is to be saved after this step.
  bool due(int64_t step) const;
  // The same for the last step, after which a longer run may go on.
  bool due_at_end() const;
  // For the time since the last one (--save-minutes), as this rank's clock has it.
  bool time_is_up() const;
  // Takes note of an evaluation; comes before due() of its step.
  void evaluated(int64_t step, double loss);
  // A signal has left out the evaluation that was due: the run that goes on makes up for it.
  void owe_evaluation() { owes_evaluation_ = true; }

  // Returns what to tell. The checkpoint is good once confirm() is called: the model may be what
  // nobody can train on, and until that is known those before it stay. An Error where it could not
  // be saved; the run may go on. None is under way.
  std::vector<std::string> save(int64_t step, const WriteMore& write_more);
  // The same while training goes on, up to finish(), which returns what to tell.
  void start(int64_t step, const WriteMore& write_more);
  std::vector<std::string> finish();
  bool under_way() const { return engine_.checkpoint_under_way(); }
  // A later step had a finite loss. Of the good ones the newest stay, as many as are to be kept,
  // and the best. Returns what went wrong.
  std::vector<std::string> confirm();

  // Also one that is under way.
  bool saved(int64_t step) const { return last_saved_ == step; }
  // What the last one that was saved took to write, beside training or not, rather than what it
  // held training up, or the time until training came to its end; 0: none was.
  double writing_seconds() const { return writing_seconds_; }
  const BestModel& best() const { return best_; }
  // "; the newest good model is out/checkpoints/step-8", or empty.
  std::string newest_good() const;
  std::filesystem::path folder_of(int64_t step) const;

 private:
  std::vector<std::string> ended(const engine::SavedCheckpoint& done);
  engine::CheckpointRequest request(int64_t step, const WriteMore& write_more) const;
  void restore(const engine::ClientState& state);
  void look_for_best(Loaded& loaded);
  int64_t most_kept() const;
  std::set<int64_t> named() const;

  const RunPlan& plan_;
  engine::Engine& engine_;
  std::filesystem::path folder_;  // "out/checkpoints"
  Occasions occasions_;
  BestModel best_;
  std::deque<int64_t> good_;  // steps
  std::vector<int64_t> unconfirmed_;
  std::optional<int64_t> last_saved_;
  bool confirmed_beside_ = false;  // the one that is under way
  bool owes_evaluation_ = false;
  double writing_seconds_ = 0;
  std::chrono::steady_clock::time_point last_start_, last_end_;
};

}  // namespace zeroth::trainer
