// Engine::Impl: the parts of an engine. One step is a list of named phases, none of which depends
// on a strategy.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/state/checkpointer.h"
#include "engine/step/block_runner.h"
#include "engine/step/expert_loads.h"
#include "engine/step/partition.h"
#include "engine/step/pipe_link.h"
#include "engine/step/schedule.h"
#include "engine/step/step_batches.h"
#include "engine/step/step_profiler.h"
#include "engine/verify/parameter_faults.h"
#include "optim/loss_scaler.h"
#include "optim/schedule/lr_schedule.h"
#include "zero/strategy.h"

namespace zeroth::engine {

class Engine::Impl {
 public:
  // The arguments are those of Engine's constructor.
  Impl(model::Blocks blocks, const configs::Config& config, std::shared_ptr<comm::DeviceMesh> mesh,
       const InitOptions& options, std::shared_ptr<device::HostLink> link);

  const zero::UnitPlan& plan() const { return plan_; }
  zero::ParamStore& store() { return *strategy_.store; }
  zero::GradReducer& grads() { return *strategy_.grads; }
  zero::BlockParams& params() { return *strategy_.params; }
  zero::ShardedOptimizer& optimizer() { return *strategy_.optimizer; }
  ShardedState sharded_state() { return {plan_, store(), optimizer()}; }
  void set_saved_inputs(std::shared_ptr<SavedInputs> kept) { saved_inputs_ = std::move(kept); }

 private:
  friend class Engine;

  StepStats train_batch(DataLoader& data);
  std::string current_operation() const;
  void trace_next_step() { traces_next_step_ = true; }
  EvalStats eval_batch(DataLoader& data, int64_t micro_batches);
  RunCounters counters() const;
  // Continues after the steps of another run, whose values are loaded.
  void take_over(const RunCounters& counters);

  // Runs forward and backward of the whole step; returns this rank's addend of the loss, fp64
  // scalar.
  torch::Tensor run_micro_batches(StepBatches& step);
  // MicroBatchInFlight is a micro-batch between the first operation on it and the last.
  struct MicroBatchInFlight {
    model::MicroBatch batch;
    Tape tape;
    torch::Tensor x = {}, dy = {};  // that the next operation on it continues with
    size_t ops_left = 0;
  };
  // Returns the next micro-batch, whose number this is.
  model::MicroBatch next_batch(StepBatches& batches, int64_t micro_batch) const;
  using MicroBatchesInFlight = std::vector<std::optional<MicroBatchInFlight>>;
  // Returns the operation's micro-batch, which it fetches into its place for the first one.
  MicroBatchInFlight& micro_batch_of(const PipeOp& op, StepBatches& batches,
                                     MicroBatchesInFlight& in_flight);
  // Run an operation, receive what it begins with and send its result.
  torch::Tensor run_forward(const PipeOp& op, MicroBatchInFlight& current);
  void run_backward(const PipeOp& op, MicroBatchInFlight& current,
                    const std::function<void()>& prefetch_next);
  // Evaluates micro-batches, of which the first has this number; adds their loss and their label
  // tokens to `sums`.
  void evaluate_group(StepBatches& drawn, int64_t first, int64_t micro_batches,
                      const torch::Tensor& sums);
  // Returns PipeLink::LeadingExtents of a micro-batch.
  std::optional<std::vector<int64_t>> leading_extents(const StepBatches& batches,
                                                      int64_t micro_batch) const;
  // Fills in what the loss of a micro-batch of a training step is divided and scaled by.
  void prepare(model::MicroBatch& batch) const;
  void verify_micro_batches_match(int64_t micro_batches) const;
  void require_values(std::string_view call) const;
  // Skips the step, or clips and updates; fills the related stats. `grad_factor` is from the sum
  // over the ranks to the gradient.
  void finish_step(StepStats& stats, double grad_factor);
  double pipe_waited_seconds() const;  // that this rank has waited for others of its pipeline
  // Returns this rank's part of StepStats::pipe_idle, of which the ranks' sum is the mean.
  std::vector<double> own_idle(double seconds) const;
  // Returns the times since the engine was made.
  OffloadTimes offload_times() const;
  void report_offload(const OffloadTimes& before, StepStats& stats) const;

  configs::Config config_;
  std::shared_ptr<comm::DeviceMesh> mesh_;
  model::Blocks blocks_;
  PipelinePartition partition_;
  zero::UnitPlan plan_;
  zero::Strategy strategy_;
  optim::LrSchedule lr_;
  optim::LossScaler scaler_;
  size_t first_trained_;  // block; backward stops there
  StepSchedule schedule_;
  PipeLink link_;
  std::shared_ptr<SavedInputs> saved_inputs_;
  BlockRunner runner_;
  ExpertLoads expert_loads_;
  std::optional<LossNormalizer> normalizer_;  // set in the first step
  bool batches_verified_ = false;             // since the start, or since a checkpoint was loaded
  StepProfiler profiler_;
  Checkpointer checkpointer_;  // destroyed before what it reads
  bool saves_beside_;          // for memory()
  NonFiniteSkips skips_;
  StepDecision decision_;
  bool has_values_;  // false: until a checkpoint is loaded
  bool traces_next_step_ = false;
  int64_t steps_ = 0;            // completed train_batch calls
  int64_t applied_updates_ = 0;  // steps that were not skipped
};

}  // namespace zeroth::engine
