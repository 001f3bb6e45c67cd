// A block's parameters as the loop over blocks uses them: with the update that waits for them,
// whole, and gathered ahead of use.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/gather_prefetcher.h"
#include "zero/param_store.h"
#include "zero/sharded_optimizer.h"

namespace zeroth::zero {

class BlockParams {
 public:
  struct Options {
    GatherLimits limits = {};
    // update() only begins to read; a unit is updated when it is next used, so that transfers, and
    // a GPU's updates, pass beside the forward pass. Changes no bit.
    bool update_before_use = false;
  };

  // Keeps references to all of them. Throws an Error as check_max_live.
  BlockParams(const UnitPlan& plan, ParamStore& store, ShardedOptimizer& optimizer,
              const Options& options);

  // The block visits to come, in order; gathers run ahead along them, and reads of what rests
  // elsewhere ahead of these. An empty list releases every kBeforeUse unit that
  // is not leased.
  void set_access_order(std::vector<size_t> accesses);
  // Whole, updated parameters of every unit of the block, ordered on the current stream. With
  // expected visits left, `block` must be the next of them. Collective when something has to be
  // gathered. Throws what the stores throw; when that interrupts an update, every later use of a
  // unit that waits for one is an Error.
  [[nodiscard]] Lease gather(size_t block);
  // Updates every trainable unit in forward order, at once or before its next use. Throws as
  // gather().
  void step(const optim::UpdateStep& step);

  // This rank's share of a unit to read, on the device.
  offload::ChunkLease acquire_shard(size_t unit);

  // Seconds of this thread in updates that waited for the next use, waits for tiles included, since
  // the start.
  double pending_update_seconds() const { return update_seconds_; }

 private:
  GatherPrefetcher::GatherState gather_state() const;
  void apply_pending_update(size_t unit);
  // Reads are announced here only.
  static void prefetch(Reads reads);

  const UnitPlan& plan_;
  ParamStore& store_;
  ShardedOptimizer& optimizer_;
  GatherPrefetcher ahead_;
  bool update_before_use_;
  double update_seconds_ = 0;
};

}  // namespace zeroth::zero
