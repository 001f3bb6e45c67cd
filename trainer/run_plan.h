// The plan of a run: everything that is known before ranks are connected and weights are read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/files/output_lock.h"
#include "comm/bootstrap/restart_attempt.h"
#include "configs/resolve.h"
#include "data/samples/batch.h"
#include "data/samples/dataset.h"
#include "data/samples/sample_order.h"
#include "engine/memory/memory_check.h"
#include "model/spec.h"
#include "trainer/attempt_record.h"
#include "trainer/flags/flags.h"
#include "trainer/requested_monitors.h"
#include "trainer/resume_plan.h"
#include "trainer/run_fingerprint.h"
#include "trainer/samples.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer {

struct RunPlan {
  Flags flags;
  comm::RestartAttempt attempt;
  std::optional<AttemptRecord> previous_attempts;  // record that earlier attempts have left
  configs::Config config;
  configs::Origins origins;    // of config's values, by key
  configs::Diagnostics notes;  // of the flags, the configuration and other inputs
  model::ModelSpec spec;
  Samples samples;
  std::optional<ResumePlan> resume_plan;  // checkpoint from which it resumes
  NumericSettings kept_numerics;          // of resume_plan; config has the step
  // Set if the run saves checkpoints or resumes from one; otherwise empty. Computing it reads the
  // samples.
  RunFingerprint fingerprint;
  // The run is at position s * train_batch_size + offset of the sample order after s steps. The
  // offset is not 0 if earlier batches had another size.
  int64_t offset = 0;
  int64_t rank_batch = 0;  // configs::Resolved::rank_batch
  int num_ranks = 1;
  torch::DeviceType device = torch::kCPU;  // device on which ranks compute
  engine::MemoryEstimate estimate;
  RequestedMonitors monitors;  // in addition to those of config

  bool trains() const { return samples.train != nullptr; }
  OutputAttempt output_attempt() const { return {attempt.run, attempt.index}; }
  // Returns the number of ranks that draw different samples.
  int data_parallel_size() const {
    return static_cast<int>(configs::data_ranks(config, num_ranks));
  }
  // Return whether the run saves checkpoints before its end, and whether it trains during a save.
  bool saves_checkpoints() const;
  bool saves_async() const { return saves_checkpoints() && !flags.state.sync; }
  // Return the part of a batch that data-parallel rank `data_rank` gets.
  data::BatchPartition train_partition(int64_t data_rank) const;
  data::BatchPartition eval_partition(int64_t data_rank) const;
  data::SampleOrder sample_order() const;
  // Returns the number of micro-batches of an evaluation on each rank.
  int64_t num_eval_batches() const {
    return data::num_eval_batches(samples.eval_samples, eval_partition(0));
  }
  // Returns when an action with this interval is due during the run.
  StepTrigger trigger(const Interval& interval) const;
  // Return the positions of the sample order, and the samples there, that `step` steps consume.
  int64_t positions_after(int64_t step) const {
    return step * config.batch.train_batch_size + offset;
  }
  int64_t samples_after(int64_t step) const {
    return samples.num_samples_in(positions_after(step));
  }
  // Returns the passes over the data after `step` steps; 0 without training. Counts micro-batches,
  // as Trainer does, if epochs end with a short step.
  double epochs_after(int64_t step) const;
};

// Reads the configuration, config.json, tokenizer and data. Every rank calls it independently and
// finds the same Errors: mistakes of a user are found here, before anything expensive. With
// --print-config and no --data, the datasets stay null.
//
// Resumes the run in a later restart attempt, as with --resume auto, and with the batch of the
// earlier attempts.
//
// Shows the reading of data as a phase of `phases`, unless that is null.
RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device = torch::kCPU,
                  comm::RestartAttempt attempt = {}, PhaseProgress* phases = nullptr);

// Returns the memory that the run requires, without activations, on a node with `local_ranks` of
// its ranks. Throws an Error as engine::run_memory.
engine::RunMemory run_memory(const RunPlan& plan, int local_ranks);

}  // namespace zeroth::trainer
