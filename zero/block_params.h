// A block's parameters as the loop over blocks uses them: updated before use, gathered, and
// prefetched.
#pragma once

#include <vector>

#include "optim/update_step.h"
#include "zero/gather_prefetcher.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::zero {

class ShardedOptimizer;

class BlockParams {
 public:
  struct Options {
    GatherLimits limits = {};
    // step() then only starts reads; a unit is updated when it is next used, so that transfers, and
    // a GPU's updates, overlap with the forward pass. Results are bitwise the same.
    bool update_before_use = false;
  };

  // Keeps references to all arguments but `options`. Throws an Error like check_max_live.
  BlockParams(const UnitPlan& plan, ParamStore& store, ShardedOptimizer& optimizer,
              const Options& options);

  // Sets the block accesses to come, in order. Gathers are prefetched along them, and reads of
  // offloaded shards are prefetched ahead of the gathers. An empty list releases every kBeforeUse
  // unit that is not leased.
  void set_access_order(std::vector<size_t> accesses);
  // Gathers the full, updated parameters of every unit of the block, ordered on the current stream.
  // If accesses are left in the order, `block` must be the next of them, or the previous one again.
  // Collective if a unit has to be gathered. Throws the errors of the stores; if one interrupts an
  // update, every later use of a unit with a pending update throws an Error.
  [[nodiscard]] Lease gather(size_t block);
  // Updates every trainable unit in forward order, at once or before its next use. Throws like
  // gather().
  void step(const optim::UpdateStep& step);

  bool holds(size_t block) const { return plan_.holds(block); }
  // Acquires this rank's shard of a unit for reading, on the device.
  offload::ChunkLease acquire_shard(size_t unit);

  // Returns the seconds of this thread in updates deferred to the next use, waits for chunks
  // included, since the start.
  double pending_update_seconds() const { return update_seconds_; }

 private:
  GatherPrefetcher::GatherState gather_state() const;
  void apply_pending_update(size_t unit);

  const UnitPlan& plan_;
  ParamStore& store_;
  ShardedOptimizer& optimizer_;
  GatherPrefetcher ahead_;
  bool update_before_use_;
  double update_seconds_ = 0;
};

}  // namespace zeroth::zero
