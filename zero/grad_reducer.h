// The reduction and storage of a block's gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "zero/flat_layout.h"

namespace zeroth::zero {

class GradientOffload;
struct UnitPlan;

class GradReducer {
 public:
  virtual ~GradReducer() = default;

  // Announces the blocks whose backward passes the step will end, in order, one for each
  // micro-batch. Where a block follows itself, its gradients are summed before they are reduced.
  virtual void set_backward_order(std::vector<size_t> blocks) = 0;
  // Points mutable_grad() of the block's trainable parameters at buffers to which backward adds (or
  // which it overwrites if they hold no gradient yet: model/blocks/main_grad.h).
  virtual void open(size_t block) = 0;
  // Ends the block's backward for this micro-batch. Starts the reduction, or only accumulates; the
  // reduction overlaps with the next block.
  virtual void add(size_t block) = 0;
  // Waits for every reduction. After it grad(u) is the sum over the step's micro-batches and all
  // ranks that hold u (Unit::num_replicas, Unit::pp_ranks). Returns the squared L2 norms, [number
  // of trainable units] fp64 on the device, of the parts that this rank owns: summed over the ranks
  // each element counts once. Collective over the ranks that hold the same units.
  virtual torch::Tensor finish() = 0;
  // Returns [range(u).size()], this rank's range of the unit's gradient in the dtype of
  // accumulation, or, on the CPU, of the wire if a step has one micro-batch; undefined for frozen
  // units. The optimizer may overwrite it.
  virtual torch::Tensor grad(size_t unit) const = 0;
  virtual Range range(size_t unit) const = 0;  // range of the unit's flat buffer
  // Returns whether backward has given this parameter a gradient in this step, on this rank. A
  // parameter without one counts as zero.
  virtual bool got_gradient(size_t unit, size_t slot) const = 0;
  // Drops the step's gradients, also those of an interrupted step; waits for operations in flight.
  virtual void reset() = 0;

  // Returns the bytes of all tensors on the device that are kept from step to step.
  virtual int64_t persistent_bytes() const = 0;
  // Returns the part of persistent_bytes() in buffers that gradients pass through.
  virtual int64_t buffer_bytes() const = 0;
};

struct GradReducerOptions {
  torch::Device device = torch::kCPU;
  torch::Dtype wire = torch::kFloat;          // dtype of gradients in communication
  torch::Dtype accumulation = torch::kFloat;  // dtype of sums over micro-batches
  bool reduce_scatter = true;  // false: a rank that needs a shard all-reduces and uses its part
  // Maximum number of reductions in flight when add() returns; with several, bucket_elements bounds
  // their total elements.
  size_t max_in_flight = 2;  // 0: no overlap
  // A larger unit is reduced in buckets of this many elements (64 per rank at least).
  int64_t bucket_elements = INT64_MAX;
  // Copies each rank's range to the CPU, where grad(u) is then; null: it stays on the device.
  std::shared_ptr<GradientOffload> gradient_offload = nullptr;
};

// What a reducer keeps of gradients, and when it reduces them.
enum class ReducerKind {
  // Full gradients on every rank, to which it adds; the last micro-batch all-reduces. range(u) is
  // all of u.
  kFull,
  // The same buffers; the last micro-batch reduce-scatters. range(u) is this rank's shard.
  kLateScatter,
  // Full gradients of a few blocks only: each micro-batch, or each run of micro-batches of a block,
  // reduce-scatters them (once per use of a tied weight) into the shards.
  kScatter,
};

// Makes a reducer. It keeps references to `plan` and `mesh`, whose groups it requests when it first
// communicates.
std::unique_ptr<GradReducer> make_grad_reducer(ReducerKind kind, const UnitPlan& plan,
                                               const comm::DeviceMesh& mesh,
                                               const GradReducerOptions& options);

}  // namespace zeroth::zero
