// The plan of a run: everything that is known before ranks are connected and weights are read. It
// is made in stages, each from the one before: a StartPoint, a ResolvedRun, a RunPlan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/restart_attempt.h"
#include "configs/resolve.h"
#include "data/samples/batch.h"
#include "data/samples/sample_order.h"
#include "engine/memory/memory_estimate.h"
#include "model/hf/model_writer.h"
#include "model/spec.h"
#include "monitor/monitors.h"
#include "trainer/flags/flags.h"
#include "trainer/resume_plan.h"
#include "trainer/run_fingerprint.h"
#include "trainer/samples.h"
#include "trainer/start_point.h"

namespace zeroth::trainer {

class PhaseProgress;
class StepTrigger;

// The monitors that --report_to requests.
struct RequestedMonitors {
  monitor::TrainerEventFiles tensorboard;
  std::string run_name;  // this run's directory name in OUTPUT/runs; empty: no monitor writes there
};

// A run whose configuration, model, data and steps are known.
struct ResolvedRun : StartPoint {
  int num_ranks = 1;
  torch::DeviceType device = torch::kCPU;  // device on which ranks compute
  model::ModelSpec spec = {};
  Samples samples = {};
  configs::Config config = {};
  configs::Origins origins = {};  // of config's values, by key
  int64_t rank_batch = 0;         // configs::Resolved::rank_batch
  RequestedMonitors monitors = {};
  std::optional<model::AdapterForm> adapter = {};  // set: it is trained in place of the model
  engine::MemoryEstimate estimate = {};

  bool trains() const { return samples.train != nullptr; }
  // Returns the number of ranks that draw different samples.
  int data_parallel_size() const { return static_cast<int>(config.data_ranks(num_ranks)); }
  // Returns the samples of a step over all ranks.
  int64_t global_batch() const { return config.batch.train_batch_size; }
  // Return whether the run saves checkpoints before its end, and whether it trains during a save.
  bool saves_checkpoints() const;
  bool saves_async() const { return saves_checkpoints() && !flags.state.sync; }
  // Return the part of a batch that data-parallel rank `data_rank` gets.
  data::BatchPartition train_partition(int64_t data_rank) const;
  data::BatchPartition eval_partition(int64_t data_rank) const;
  data::SampleOrder sample_order() const;
  // Returns when an action with this interval is due during the run.
  StepTrigger trigger(const Interval& interval) const;
  // Return the positions of the sample order, and the samples there, that `step` steps consume.
  int64_t positions_after(int64_t step) const { return step * global_batch() + samples.offset; }
  int64_t samples_after(int64_t step) const {
    return samples.num_samples_in(positions_after(step));
  }
  // Returns the passes over the data after `step` steps; 0 without training. Counts micro-batches,
  // as Trainer does, if epochs end with a short step.
  double epochs_after(int64_t step) const;
};

// The run, and what a checkpoint records of it or gives to it.
struct RunPlan : ResolvedRun {
  // Set if the run saves checkpoints or resumes from one; otherwise empty. Computing it reads the
  // samples.
  RunFingerprint fingerprint = {};
  NumericSettings kept_numerics = {};  // of resume_plan; config has the step
};

// Returns the requested monitors. Without --logging_dir they write into a directory of this run in
// OUTPUT/runs, as Trainer's do. A service, which cannot be reached from here, is replaced by files,
// and a warning in `resolved` reports that, whether --report_to names it or the configuration
// enables it. CSV files are csv_monitor's, which stays unchanged if the configuration enables it
// already. `resumes`: the directory will be that of an earlier attempt.
RequestedMonitors request_monitors(const Flags& flags, bool resumes, configs::Resolved& resolved);

// Checks Trainer's flags that set nothing here, but that request what a run may do by itself
// (HfFlag::Kind::kRequest):
//   --bf16_full_eval  if the run trains in bf16, its evaluations are in bf16, too
//   --optim NAME      if the configuration has this optimizer
//   --data_seed N     if it is the seed of the run
// Throws an Error that lists each flag that requests something else than the run does, with both.
void check_hf_requests(const ResolvedRun& run);

// Does what --tokenize asks for: see tokenize() (trainer/samples.h).
std::string tokenize_data(Flags flags, PhaseProgress* phases);

// Reads the configuration, config.json, tokenizer and data. Every rank calls it independently and
// finds the same Errors: mistakes of a user are found here, before anything expensive. With
// --print-config and no --data, the datasets stay null.
//
// Resumes the run in a later restart attempt, as with --resume auto, and with the batch of the
// earlier attempts.
//
// Shows the reading of data as a phase of `phases`, unless that is null.
RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device = torch::kCPU,
                  RestartAttempt attempt = {}, PhaseProgress* phases = nullptr);

}  // namespace zeroth::trainer
