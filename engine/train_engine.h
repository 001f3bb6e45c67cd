// TrainEngine: the engine that zeroth::initialize returns. One step is a list of named phases, none
// of which depends on a strategy.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/state/checkpoint_files.h"
#include "engine/step/block_runner.h"
#include "engine/step/schedule.h"
#include "engine/step/step_batches.h"
#include "engine/step/step_profiler.h"
#include "engine/verify/non_finite.h"
#include "optim/loss_scaler.h"
#include "optim/schedule/lr_schedule.h"
#include "zero/sharded_optimizer.h"
#include "zero/strategy.h"

namespace zeroth::engine {

class TrainEngine final : public Engine {
 public:
  // `link` is passed to zero::make_strategy; `trains` is InitOptions::trains.
  TrainEngine(model::Blocks blocks, const configs::Config& config,
              std::shared_ptr<comm::DeviceMesh> mesh,
              std::shared_ptr<device::HostLink> link = nullptr, bool trains = true);

  StepStats train_batch(Loader& data) override;
  EvalStats eval_batch(Loader& data, int64_t micro_batches) override;
  void evaluated(double loss) override { lr_.record_evaluation(loss); }
  void save_model(ModelSink& sink, SavedValues values = SavedValues::kWorking) override;
  void save_model(const std::filesystem::path& dir) override;
  void save_states(StateSink& sink) override;
  RunCounters counters() const override;
  SavedCheckpoint save_checkpoint(const std::filesystem::path& dir,
                                  const CheckpointRequest& request = {}) override;
  std::optional<SavedCheckpoint> start_checkpoint(const std::filesystem::path& dir,
                                                  const CheckpointRequest& request = {}) override;
  SavedCheckpoint finish_checkpoint() override { return checkpoints_.finish(); }
  bool has_pending_checkpoint() const override { return checkpoints_.is_saving(); }
  std::vector<std::string> keep_checkpoints(const std::filesystem::path& dir, int64_t newest,
                                            const std::set<int64_t>& steps) override;
  std::optional<LoadedCheckpoint> load_checkpoint(const std::filesystem::path& path,
                                                  const LoadOptions& options = {}) override;
  void load_states(StateSource& source, const RunCounters& counters) override;

  const configs::Config& config() const override { return config_; }
  comm::DeviceMesh& mesh() const override { return *mesh_; }
  zero::MemoryPlan memory() const override;
  int64_t num_parameters() const override;
  DecayCounts decay_counts() const override;
  std::vector<std::string> notes() const override;
  std::string current_operation() const override { return runner_.current_operation(); }
  std::string strategy() const override { return strategy_.description; }
  std::optional<configs::OffloadOptimizerConfig::UpdateDevice> measured_step() const override {
    return strategy_.shard_stores.measured_step;
  }

  // Methods for set-up, and for tests that inspect the engine.
  void await_checkpoint() { has_values_ = false; }
  void set_saved_model(std::optional<SavedModel> model, bool beside_training) {
    checkpoints_.set_saved_model(std::move(model));
    saves_beside_ = beside_training;
  }
  void set_saved_inputs(std::shared_ptr<SavedInputs> kept) { saved_inputs_ = std::move(kept); }
  const zero::UnitPlan& plan() const { return plan_; }
  zero::ParamStore& store() { return *strategy_.store; }
  zero::BlockParams& params() { return *strategy_.params; }
  zero::ShardedOptimizer& optimizer() { return *strategy_.optimizer; }

 private:
  // Runs forward and backward of the whole step; returns this rank's addend of the loss, fp64
  // scalar.
  torch::Tensor run_micro_batches(StepBatches& step);
  // Returns the step's next micro-batch; if `verifies`, checks that ranks sharing layers got the
  // same one.
  model::MicroBatch next_batch(StepBatches& step, bool verifies);
  void verify_micro_batches_match(int64_t micro_batches) const;
  // Returns the blocks that `count` passes without backward gather, in order.
  std::vector<size_t> forward_accesses(int64_t count) const;
  void require_values(std::string_view call) const;
  // Returns the unit's full buffer in fp32. Collective over its shard group.
  torch::Tensor whole_master(size_t unit);
  ShardedState sharded_state();
  EngineValues values() { return {sharded_state(), config_, strategy_.description}; }
  std::optional<SavedCheckpoint> end_checkpoint();
  void take_over(const RunCounters& counters);
  // Returns this rank's totals other than its loss and norm.
  StepTotals local_totals(const StepBatches& step, Loader& data);
  // Skips the step, or clips and updates; fills the related stats. `grad_factor` is from the sum
  // over the ranks to the gradient.
  void finish_step(StepStats& stats, double grad_factor);
  void apply_update(const StepStats& stats, double grad_factor);
  // Returns the times since the engine was made.
  OffloadTimes offload_times() const;
  void report_offload(const OffloadTimes& before, StepStats& stats) const;

  configs::Config config_;
  std::shared_ptr<comm::DeviceMesh> mesh_;
  model::Blocks blocks_;
  zero::UnitPlan plan_;
  zero::Strategy strategy_;
  optim::LrSchedule lr_;
  optim::LossScaler scaler_;
  size_t first_trained_;  // block; backward stops there
  std::vector<Segment> segments_;
  std::shared_ptr<SavedInputs> saved_inputs_;
  BlockRunner runner_;
  std::optional<LossNormalizer> normalizer_;  // set in the first step
  bool batches_verified_ = false;             // since the start, or since a checkpoint was loaded
  StepProfiler profiler_;
  CheckpointFiles checkpoints_;  // destroyed before what it reads
  bool saves_beside_ = false;    // for memory()
  NonFiniteSkips skips_;
  std::string failure_;          // why the next step cannot run
  bool has_values_ = true;       // false: until a checkpoint is loaded
  int64_t steps_ = 0;            // completed train_batch calls
  int64_t applied_updates_ = 0;  // steps that were not skipped
};

}  // namespace zeroth::engine
