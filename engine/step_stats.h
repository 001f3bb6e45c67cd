// What a step, or an evaluation, says of itself.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "device/memory_use.h"
#include "offload/access.h"

namespace zeroth::engine {

// Seconds of one step by the clock of the device that works; they add up to the step less what the
// caller does between steps.
struct StepTimes {
  double data = 0;      // Loader::next
  double forward = 0;   // with the waits for gathers in it
  double backward = 0;  // recompute and the start of reductions included
  double reduce = 0;    // waiting for the last reductions, norm
  // On a GPU of the update of the step before, as that of this one still goes on when the step
  // returns; likewise where updates wait for the next forward. On the CPU they are then no part of
  // the forward's time; on a GPU that has the waits for them in it.
  double update = 0;
};

// What offload cost this rank in one step.
struct OffloadTimes {
  double update = 0;         // seconds in updates that waited for the next use of their parameters
  offload::Traffic traffic;  // between resting places and memory
  // Share of the transfers' time in which this rank did something else. A GPU and its host may wait
  // at once: none then.
  double hidden() const {
    return traffic.waited_s < traffic.in_flight_s ? 1 - traffic.waited_s / traffic.in_flight_s : 0;
  }
};

// Of one block in one step, all micro-batches together.
struct BlockTime {
  std::string label;
  int64_t parameters = 0;  // whole; a tied weight counts in each of its blocks
  // Seconds, gathers included; on the CPU without the updates that waited for the parameters, on a
  // GPU with the waits for them.
  double forward = 0;
  double backward = 0;  // recompute and the start of reductions included
};

struct MemoryPoint {
  std::string name;  // "after forward"
  device::MemoryUse use;
};

struct StepStats {
  int64_t step = 0;  // 1 for the first
  double loss = 0;   // the mean that Config::loss_mean names
  // Global L2 norm before clipping, unscaled; not finite when the step was skipped.
  double grad_norm = 0;
  double lr = 0;  // rate that this update used
  // What the next update uses, unless an evaluation that comes before it changes the rate.
  double next_lr = 0;
  std::array<double, 2> next_betas = {};
  double loss_scale = 1;
  // Not empty: the run cannot go on (NonFiniteSkips::End) and why. The next train_batch throws it.
  std::string failure;
  // Where and since which step gradients are not finite: "since step 3, first in backward in block
  // head, parameter head.weight". Empty where they are.
  std::string not_finite;
  bool skipped = false;         // gradients were not finite: no update
  bool stop_requested = false;  // some rank's Loader wants training to end; the same on all ranks
  bool save_requested = false;  // likewise, wants it to be saved
  // What start_checkpoint() has begun is written, or has failed, on all ranks: finish_checkpoint()
  // need not wait.
  bool checkpoint_written = false;
  int64_t skipped_total = 0;
  int64_t tokens = 0;            // positions run, over all ranks, padding included
  int64_t num_label_tokens = 0;  // over all ranks
  StepTimes times;
  comm::CommTimes comm;                                  // of this rank in this step
  std::map<std::string, comm::CommTimes> comm_by_group;  // the same by DeviceMesh::times_by_group()
  OffloadTimes offload;
  std::vector<MemoryPoint> memory;  // of this rank, with memory_breakdown; else empty
  std::vector<BlockTime> blocks;    // of this rank, in the step that flops_profiler asks for
};

struct EvalStats {
  double loss = 0;  // mean over all trained tokens of all ranks
  int64_t num_label_tokens = 0;
  bool stop_requested = false;  // some rank's Loader wanted it to end: it was left, and has no loss
};

}  // namespace zeroth::engine
