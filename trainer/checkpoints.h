// The models that a run writes: into --output at its end, into folders of it on the way.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "engine/engine.h"
#include "engine/model_sink.h"
#include "model/hf/model_writer.h"
#include "model/hf/output_folder.h"
#include "model/hf/output_lock.h"
#include "trainer/best_model.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// What a user should know about --output before training, one line each: a disk with less room than
// the models need, folders of an earlier run.
std::vector<std::string> saving_warnings(const RunPlan& plan);

// Rank 0 takes the lock of --output, so that another run into it is refused until this one ends.
// Null on the other ranks, and without --output. What rank 0 throws, all ranks throw. Collective.
std::unique_ptr<model::OutputLock> lock_output(const RunPlan& plan, comm::Mesh& mesh);

// Saving and confirm() are collective. What goes wrong on rank 0, which writes, is the same Error
// on all ranks, and what was saved before stays as it was. A parameter that is not finite is such
// an Error.
class Checkpoints {
 public:
  Checkpoints(const RunPlan& plan, engine::Engine& engine);

  // Whether a model is to be saved after this step. The last step is none on the way.
  bool due(int64_t step) const;
  // Takes note of an evaluation; comes before due() of its step.
  void evaluated(int64_t step, double loss) { best_.evaluated(step, loss); }
  // Returns the folder, which is good once confirm() is called: the model may be what nobody can
  // train on, and until that is known those before it stay.
  std::filesystem::path save_step(int64_t step);
  // A later step had a finite loss. Of the good ones of this run the newest stay, as many as are
  // to be kept, and the best.
  void confirm();
  // The model that it replaces stays beside it for as long as this object lives.
  void save_final();
  bool saved_final() const { return saved_final_; }
  // --load_best_model_at_end: the best model that was saved on the way takes the place of the final
  // one, unless that is the best. Returns what to tell; empty: nothing. Collective.
  std::string place_best();
  const BestModel& best() const { return best_; }
  // Whose model stands in --output.
  int64_t final_step() const { return placed_step_.value_or(plan_.samples.total_steps); }
  // The final model has shown to be no good. Puts the one before back in its place, if there was
  // one, and throws an Error with `why`, and where the models are. Collective.
  void withdraw_final(const std::string& why);
  // "; the newest good model is out/step-8", or empty.
  std::string newest_good() const;

 private:
  // Returns the model that was replaced, on the rank that writes.
  std::unique_ptr<model::FormerModel> save(const std::filesystem::path& folder, bool overwrite);
  std::string put_back_former();
  void copy_best() const;
  size_t most_kept() const;

  const RunPlan& plan_;
  engine::Engine& engine_;
  Occasions occasions_;
  BestModel best_;
  std::deque<std::filesystem::path> good_;
  std::vector<std::filesystem::path> unconfirmed_;
  bool saved_final_ = false;
  std::optional<int64_t> placed_step_;  // by place_best
  std::unique_ptr<model::FormerModel> former_;
};

// The folder appears, whole, in finish(). On ranks whose sink is never called nothing happens. An
// Error waits for finish(): the gathers that feed the sink are collective and must go on.
class HfOutput : public engine::ModelSink {
 public:
  // `dtype` on the disk; unset: that of the parameters.
  HfOutput(model::WriterOptions options, std::optional<torch::Dtype> dtype)
      : options_(std::move(options)), dtype_(dtype) {}

  void begin(const std::vector<engine::ParameterInfo>& parameters) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  // What went wrong, if anything.
  std::optional<std::string> finish();
  // After finish(): the model that was replaced, if any. It goes when the result does.
  std::unique_ptr<model::FormerModel> take_former() { return std::move(former_); }

 private:
  template <typename Action>
  void unless_failed(Action action);

  model::WriterOptions options_;
  std::optional<torch::Dtype> dtype_;
  std::optional<model::ModelWriter> writer_;
  std::optional<std::string> failure_;
  std::unique_ptr<model::FormerModel> former_;
};

// Returns when every rank has come here, and throws rank 0's complaint on all of them if it has
// one: so that no rank waits for a peer that has given up. Collective.
void throw_if_rank_0_failed(comm::Mesh& mesh, const std::optional<std::string>& complaint);

}  // namespace zeroth::trainer
