// The --output directory: which process may write there, and the final model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/output_lock.h"
#include "comm/device_mesh.h"
#include "configs/diagnostic.h"
#include "engine/engine.h"
#include "engine/state/model_sink.h"
#include "model/hf/model_writer.h"
#include "model/hf/output_directory.h"

namespace zeroth::trainer {

struct RunPlan;

// Adds warnings about --output, which must be given, to show before training: less free disk space
// than the models need, directories of an earlier run.
void add_output_warnings(const RunPlan& plan, configs::Diagnostics& notes);

// Throws an Error if a file of --output is larger than `ulimit -f` allows, or if the disk has less
// room than the run writes and --allow-small-disk is not given. Does nothing in a later restart
// attempt, since the earlier ones had room.
void require_disk_space(const RunPlan& plan);

// Throws an Error if --metrics, or what exists of --output, cannot be written; called before ranks
// are connected. Creates nothing.
void require_writable(const RunPlan& plan);

// Acquires the lock of --output on rank 0, so that another run into it is rejected until this one
// ends. A later restart attempt also locks out processes of earlier attempts, and claims the
// checkpoints: a process that wakes up during a save can no longer commit it. Returns null on the
// other ranks and without --output. Throws rank 0's Error on all ranks, and one if checkpoints are
// saved and a rank on another machine sees another folder. Collective.
std::unique_ptr<OutputLock> lock_output(const RunPlan& plan, comm::DeviceMesh& mesh);

// Returns the precision of a saved model.
torch::Dtype saved_dtype(const RunPlan& plan);

// FinalModel saves the model in --output. All calls that change it are collective: an error on rank
// 0, which writes, is the same Error on all ranks, and the model saved before stays unchanged. A
// parameter that is not finite is such an Error.
class FinalModel {
 public:
  // `guard` is called on rank 0 before anything is replaced in the output.
  FinalModel(const RunPlan& plan, engine::Engine& engine, OutputGuard guard = {})
      : plan_(plan), engine_(engine), guard_(std::move(guard)) {}

  // Saves the model, and keeps the replaced one beside it for the lifetime of this object. `suffix`
  // is appended to the message of an Error. A full disk is no Error: returns the message about it,
  // the same on all ranks, and saves nothing. Returns an empty text if the model is saved.
  std::string save(const std::string& suffix);
  bool is_saved() const { return saved_; }
  // Returns whether the disk has enough room for the model; rank 0's answer counts.
  bool has_disk_space() const;
  // Returns "1.2 GiB in out, where 3.1 MiB are free".
  std::string disk_space_text() const;
  // Replaces the model by that of another directory.
  void replace_with(const std::filesystem::path& directory);
  // Rejects the saved model: restores the previous one, if any, and throws an Error with `why`, the
  // locations of the models, and `suffix`.
  void roll_back(const std::string& why, const std::string& suffix);

 private:
  std::string restore_previous();

  const RunPlan& plan_;
  engine::Engine& engine_;
  OutputGuard guard_;
  bool saved_ = false;
  std::unique_ptr<model::PreviousModel> previous_;
};

// HfModelSink writes a model directory, which appears atomically in finish(). Nothing happens on
// ranks whose sink is never called. An Error is held until finish(): the gathers that feed the sink
// are collective and must continue.
class HfModelSink : public engine::ModelSink {
 public:
  // `dtype`: precision on disk; unset: that of the parameters. `guard` is called before the
  // directory appears, on ranks whose sink is called.
  HfModelSink(model::WriterOptions options, std::optional<torch::Dtype> dtype,
              OutputGuard guard = {})
      : options_(std::move(options)), dtype_(dtype), guard_(std::move(guard)) {}

  void begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) override;
  std::string directory() const override { return writer_ ? writer_->directory().string() : ""; }
  // Returns false where rank 0's directory is not there, on a machine with a disk of its own.
  bool join(const std::string& directory, const std::vector<model::PlannedTensor>& parameters,
            torch::Dtype dtype) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  // Commits the directory once all ranks have finished. Returns the error of rank 0, or of another
  // rank by its number, if any. Collective over the ranks of the group, which accepts CPU tensors.
  std::optional<std::string> finish(comm::Group& group);
  // Returns whether the disk is full; valid after finish().
  bool is_out_of_space() const { return out_of_space_; }
  // Returns the replaced model, if any; valid after finish(). The model is deleted when the result
  // is destroyed.
  std::unique_ptr<model::PreviousModel> take_previous() { return std::move(previous_); }

 private:
  void run_unless_failed(const std::function<void()>& action);

  model::WriterOptions options_;
  std::optional<torch::Dtype> dtype_;
  OutputGuard guard_;
  std::optional<model::ModelWriter> writer_;
  bool joined_ = false;  // rank 0 has the directory
  std::optional<std::string> failure_;
  bool out_of_space_ = false;
  std::unique_ptr<model::PreviousModel> previous_;
};

// Runs `action` on rank 0, and throws an Error on all ranks if it has thrown anything, so that no
// rank waits for a peer that has given up. Collective.
void run_on_rank_0(comm::DeviceMesh& mesh, const std::function<void()>& action);

}  // namespace zeroth::trainer
