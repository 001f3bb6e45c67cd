// Everything about a run that is known before ranks are connected and weights are read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/output_lock.h"
#include "comm/restart_attempt.h"
#include "configs/resolve.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "engine/memory_check.h"
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
  std::optional<AttemptRecord> previous_attempts;  // what the rounds before have left
  configs::Config config;
  configs::Origins origins;    // of its values, by key
  configs::Diagnostics notes;  // of the flags, the configuration and the rest
  model::ModelSpec spec;
  Samples samples;
  std::optional<ResumePlan> resume_plan;  // what it goes on from
  NumericSettings kept_numerics;          // of it; config has the step
  // Of a run that saves checkpoints or goes on from one; else empty. It takes reading the samples.
  RunFingerprint fingerprint;
  // Behind s steps stand s * train_batch_size + offset positions of the sample order: not 0 where
  // batches of another size came before.
  int64_t offset = 0;
  int64_t rank_batch = 0;  // configs::Resolved::rank_batch
  int num_ranks = 1;
  torch::DeviceType device = torch::kCPU;  // on which ranks compute
  engine::MemoryEstimate estimate;
  RequestedMonitors monitors;  // beside those of config

  bool trains() const { return samples.train != nullptr; }
  OutputAttempt output_attempt() const { return {attempt.run, attempt.index}; }
  // Those that draw different samples.
  int data_parallel_size() const {
    return static_cast<int>(configs::data_ranks(config, num_ranks));
  }
  // Whether the run saves checkpoints on its way, and whether training goes on meanwhile.
  bool saves_checkpoints() const;
  bool saves_async() const { return saves_checkpoints() && !flags.state.sync; }
  // How batches are dealt to those that stand there on axis data.
  data::BatchPartition train_partition(int64_t data_rank) const;
  data::BatchPartition eval_partition(int64_t data_rank) const;
  data::SampleOrder sample_order() const;
  // Micro-batches of an evaluation on each rank.
  int64_t num_eval_batches() const {
    return data::num_eval_batches(samples.eval_samples, eval_partition(0));
  }
  // When something happens on the way of this run.
  StepTrigger trigger(const Interval& interval) const;
  // Of the sample order, and samples there, that `step` steps have taken.
  int64_t positions_after(int64_t step) const {
    return step * config.batch.train_batch_size + offset;
  }
  int64_t samples_after(int64_t step) const {
    return samples.num_samples_in(positions_after(step));
  }
  // Passes over the data after `step` steps; 0 where nothing is trained. Where epochs end with a
  // short step, Trainer's: by micro-batches.
  double epochs_after(int64_t step) const;
};

// Reads the configuration, config.json, tokenizer and data. Every rank calls it on its own and
// finds the same Errors: what a user can get wrong is found here, before anything expensive. With
// --print-config and no --data, the datasets stay null.
//
// In a later round than the first what was begun goes on, as with --resume auto, and with the batch
// of the rounds before.
//
// That it reads data is shown as a phase of `phases`, where there is one.
RunPlan make_plan(Flags flags, int64_t world_size, torch::DeviceType device = torch::kCPU,
                  comm::RestartAttempt attempt = {}, PhaseProgress* phases = nullptr);

// What it takes, activations not counted, on a machine with `here` of its ranks. Throws an Error as
// engine::run_memory.
engine::RunMemory run_memory(const RunPlan& plan, int local_ranks);

}  // namespace zeroth::trainer
