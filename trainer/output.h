// What becomes of --output: who may write there, and the model at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/output_guard.h"
#include "base/output_lock.h"
#include "comm/device_mesh.h"
#include "engine/engine.h"
#include "engine/model_sink.h"
#include "model/hf/model_writer.h"
#include "model/hf/output_directory.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// What a user should know about --output before training, one line each: a disk with less room than
// the models need, folders of an earlier run.
std::vector<std::string> output_warnings(const RunPlan& plan);

// Throws an Error where a file of --output is larger than `ulimit -f` allows, and where it has less
// room than the run writes there, unless --allow-small-disk says otherwise; not in a later round,
// whose earlier ones had room.
void require_disk_space(const RunPlan& plan);

// Throws an Error where --metrics, or what lies in --output by now, cannot be written: before ranks
// are connected. Makes nothing.
void require_writable(const RunPlan& plan);

// Rank 0 takes the lock of --output, so that another run into it is refused until this one ends; in
// a later round of a run also from a process of a round before, and then the checkpoints too: one
// that wakes up in the midst of a save cannot commit it any more.
// Null on the other ranks, and without --output. What rank 0 throws, all ranks throw. Collective.
std::unique_ptr<OutputLock> lock_output(const RunPlan& plan, comm::DeviceMesh& mesh);

// The precision of a saved model.
torch::Dtype saved_dtype(const RunPlan& plan);

// The model in --output. All calls are collective: what goes wrong on rank 0, which writes, is the
// same Error on all ranks, and what was saved before stays as it was. A parameter that is not
// finite is such an Error.
class FinalModel {
 public:
  // `guard` is asked on rank 0 before anything takes its place in the output.
  FinalModel(const RunPlan& plan, engine::Engine& engine, OutputGuard guard = {})
      : plan_(plan), engine_(engine), guard_(std::move(guard)) {}

  // The model that it replaces stays beside it for as long as this object lives. `suffix`: to be
  // said behind what went wrong. A full disk is no Error: returns the message about it, the same on
  // all ranks, and saves nothing. Empty: the model is saved.
  std::string save(const std::string& suffix);
  bool is_saved() const { return saved_; }
  // Whether there is as much room as the model takes. Of rank 0's disk.
  bool has_disk_space() const;
  // "1.2 GiB in out, where 3.1 MiB are free".
  std::string disk_space_text() const;
  // The model of another folder takes its place.
  void replace_with(const std::filesystem::path& directory);
  // It has shown to be no good. Puts the one before back in its place, if there was one, and throws
  // an Error with `why`, where the models are, and `suffix`.
  void roll_back(const std::string& why, const std::string& suffix);

 private:
  std::string restore_previous();

  const RunPlan& plan_;
  engine::Engine& engine_;
  OutputGuard guard_;
  bool saved_ = false;
  std::unique_ptr<model::PreviousModel> previous_;
};

// The folder appears, whole, in finish(). On ranks whose sink is never called nothing happens. An
// Error waits for finish(): the gathers that feed the sink are collective and must go on.
class HfModelSink : public engine::ModelSink {
 public:
  // `dtype` on the disk; unset: that of the parameters.
  // `guard` is asked before the folder appears, where this is called.
  HfModelSink(model::WriterOptions options, std::optional<torch::Dtype> dtype,
              OutputGuard guard = {})
      : options_(std::move(options)), dtype_(dtype), guard_(std::move(guard)) {}

  void begin(const std::vector<engine::ParameterInfo>& parameters) override;
  void write(const std::string& name, const torch::Tensor& value) override;
  // What went wrong, if anything.
  std::optional<std::string> finish();
  // After finish(): whether the disk is full.
  bool is_out_of_space() const { return out_of_space_; }
  // After finish(): the model that was replaced, if any. It goes when the result does.
  std::unique_ptr<model::PreviousModel> take_previous() { return std::move(previous_); }

 private:
  template <typename Action>
  void run_unless_failed(Action action);

  model::WriterOptions options_;
  std::optional<torch::Dtype> dtype_;
  OutputGuard guard_;
  std::optional<model::ModelWriter> writer_;
  std::optional<std::string> failure_;
  bool out_of_space_ = false;
  std::unique_ptr<model::PreviousModel> previous_;
};

// Returns when every rank has come here, and throws rank 0's complaint on all of them if it has
// one: so that no rank waits for a peer that has given up. Collective.
void throw_if_rank_0_failed(comm::DeviceMesh& mesh, const std::optional<std::string>& failure);

}  // namespace zeroth::trainer
