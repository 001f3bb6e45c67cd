// Statistics of a step, or of an evaluation, and what the ranks decide in a step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/groups/group.h"
#include "device/memory_use.h"
#include "offload/access.h"

namespace zeroth::engine {

// StepTimes holds seconds of one step by the clock of the computing device; they add up to the
// step's time less what the caller does between steps.
struct StepTimes {
  double data = 0;      // DataLoader::next
  double forward = 0;   // includes waits for gathers
  double backward = 0;  // includes recompute and the start of reductions
  double reduce = 0;    // waiting for the last reductions, norm
  // On a GPU this is the previous step's update, as this step's is still running when the step
  // returns; likewise if updates wait for the next forward. On the CPU those are excluded from the
  // forward's time; on a GPU the forward's time includes the waits for them.
  double update = 0;
};

// OffloadTimes is the cost of offload on this rank in one step.
struct OffloadTimes {
  double update = 0;         // seconds of updates delayed until their parameters' next use
  offload::Traffic traffic;  // between offload devices and memory
  // Returns the share of the transfer time during which this rank did other work. Returns 0 if a
  // GPU and its CPU together waited for longer than the transfers took.
  double hidden() const {
    return traffic.waited_s < traffic.in_flight_s ? 1 - traffic.waited_s / traffic.in_flight_s : 0;
  }
};

// BlockTime holds the times of one block in one step, all micro-batches together.
struct BlockTime {
  std::string label;
  int64_t parameters = 0;  // in full; a tied weight counts in each of its blocks
  // Seconds, gathers included; on the CPU without the pending updates of the parameters, on a GPU
  // with the waits for them.
  double forward = 0;
  double backward = 0;  // includes recompute and the start of reductions
};

struct MemoryPoint {
  std::string name;  // "after forward"
  device::MemoryUse use;
};

// TimelineEvent is what a rank did in one interval of a step.
struct TimelineEvent {
  enum class Kind { kData, kForward, kBackward, kBackwardInput, kBackwardWeight, kReduce, kUpdate };
  Kind kind = Kind::kData;
  int64_t micro_batch = -1;  // from 0; -1: all
  int64_t chunk = -1;        // of the blocks, counted over all ranks in the chain's order; -1: all
  // Seconds since all ranks had begun the step. The next event begins where this one ends.
  double begin = 0, end = 0;
  // Part of it that passed before another rank's activation or gradient came; 0 on a GPU, where
  // waits are part of the event's time.
  double waited = 0;
};
using Timeline = std::vector<TimelineEvent>;  // of one rank

struct StepStats {
  int64_t step = 0;  // 1 for the first
  // The mean that Config::loss_mean names, with the load balancing loss times its coefficient.
  double loss = 0;
  // The load balancing loss: the mean of the micro-batches', weighted by their label tokens.
  double aux_loss = 0;
  // [block with experts][expert]: tokens of the step over all ranks that chose it.
  std::vector<std::vector<int64_t>> expert_tokens;
  // Global L2 norm before clipping, unscaled; not finite if the step was skipped.
  double grad_norm = 0;
  double lr = 0;  // rate of this update
  // Rate of the next update, unless an earlier evaluation changes it.
  double next_lr = 0;
  std::array<double, 2> next_betas = {};
  double loss_scale = 1;
  // Location and first step of gradients that are not finite: "since step 3, first in backward in
  // block head, parameter head.weight". Empty if they are finite.
  std::string not_finite;
  bool skipped = false;  // no update, as gradients were not finite
  int64_t skipped_total = 0;
  int64_t tokens = 0;            // positions over all ranks, padding included
  int64_t num_label_tokens = 0;  // over all ranks
  StepTimes times;
  comm::CommTimes comm;                                  // of this rank in this step
  std::map<std::string, comm::CommTimes> comm_by_group;  // by DeviceMesh::times_by_group()
  // [coordinate in mesh dim pp]: seconds in which these ranks, on average, waited for activations
  // and gradients of others, and for the others' last passes; empty without a pipeline.
  std::vector<double> pipe_idle;
  OffloadTimes offload;
  std::vector<MemoryPoint> memory;  // of this rank, with memory_breakdown; otherwise empty
  std::vector<BlockTime> blocks;    // of this rank, in the step that flops_profiler selects
  std::vector<Timeline> timelines;  // [rank], on rank 0 of a traced step; otherwise empty
};

// StepDecision is what the ranks agree on in a step, and so the same on all of them: how the run
// continues.
struct StepDecision {
  // Reason why the run cannot continue (NonFiniteSkips::End); empty if it can. The next train_batch
  // throws it.
  std::string failure = {};
  bool stop_requested = false;  // some rank's DataLoader requests a stop
  bool save_requested = false;  // some rank's DataLoader requests a save
  // The checkpoint of start_checkpoint() is written, or has failed, on all ranks:
  // finish_checkpoint() need not wait.
  bool checkpoint_written = false;
};

struct EvalStats {
  double loss = 0;  // mean over all label tokens of all ranks
  int64_t num_label_tokens = 0;
  bool stop_requested = false;  // some rank's DataLoader requested a stop: there is no loss
};

}  // namespace zeroth::engine
