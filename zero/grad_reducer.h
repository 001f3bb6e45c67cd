// Where a block's gradients go.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "comm/device_mesh.h"
#include "zero/flat_layout.h"
#include "zero/unit.h"

namespace zeroth::zero {

class GradientOffload;

class GradReducer {
 public:
  virtual ~GradReducer() = default;

  // Points mutable_grad() of the block's trainable parameters at buffers that backward adds into
  // (or, where these hold nothing yet, writes: model/blocks/main_grad.h).
  virtual void open(size_t block) = 0;
  // Backward of the block is done for this micro-batch. Starts the reduction, or only accumulates;
  // the reduction overlaps with the next block. `last`: no later micro-batch of this step visits
  // the block.
  virtual void add(size_t block, bool last) = 0;
  // Waits for every reduction. After it grad(u) is the sum over the step's micro-batches and all
  // ranks that hold u (Unit::copies). Returns the squared L2 norm, fp64 scalar on the device, of
  // the parts that this rank owns: summed over the ranks each element counts once.
  virtual torch::Tensor finish() = 0;
  // [range(u).size()], this rank's range of the unit's gradient in the dtype of accumulation, or,
  // on the host, in that of the wire if it was reduced once; undefined for frozen units. The
  // optimizer may overwrite it.
  virtual torch::Tensor grad(size_t unit) const = 0;
  virtual Range range(size_t unit) const = 0;  // of the unit's flat buffer
  // Whether backward has given this parameter a gradient in this step, on this rank. Without one it
  // counts as zero.
  virtual bool got_gradient(size_t unit, size_t slot) const = 0;
  // Forgets the step's gradients, of one that was interrupted too: waits for what is under way.
  virtual void reset() = 0;

  // Of all tensors that are kept from step to step, on the device.
  virtual int64_t persistent_bytes() const = 0;
  // Of these, the ones of buffers that gradients pass through.
  virtual int64_t buffer_bytes() const = 0;
};

struct GradReducerOptions {
  torch::Device device = torch::kCPU;
  torch::Dtype wire = torch::kFloat;          // dtype in which gradients cross the group
  torch::Dtype accumulation = torch::kFloat;  // dtype of sums over micro-batches
  bool reduce_scatter = true;  // false: a rank that wants a shard all-reduces and takes its part
  // Reductions under way when add() returns: at most so many, holding at most so many elements
  // unless it is one.
  size_t max_in_flight = 2;  // 0: no overlap
  // A larger unit crosses the group in pieces of this many elements (64 per rank at least).
  int64_t bucket_elements = INT64_MAX;
  // Brings each rank's range to the host, where grad(u) is then; null: it stays on the device.
  std::shared_ptr<GradientOffload> gradient_offload = nullptr;
};

// Every rank keeps whole gradients and adds to them; the last micro-batch all-reduces. range(u) is
// all of u. Like those that follow it keeps references to `plan` and `mesh`, whose groups it asks
// for when it first sends.
std::unique_ptr<GradReducer> make_full_reducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                                               const GradReducerOptions& options);
// The same buffer, but the last micro-batch reduce-scatters it. range(u) is this rank's shard.
std::unique_ptr<GradReducer> make_late_scatter_reducer(const UnitPlan& plan,
                                                       const comm::DeviceMesh& mesh,
                                                       const GradReducerOptions& options);
// Whole gradients exist for a few blocks only: each micro-batch reduce-scatters them (once per use
// of a tied weight) into the shards.
std::unique_ptr<GradReducer> make_scatter_reducer(const UnitPlan& plan,
                                                  const comm::DeviceMesh& mesh,
                                                  const GradReducerOptions& options);

}  // namespace zeroth::zero
