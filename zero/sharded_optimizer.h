// An optimizer that applies an update rule to this rank's shard of every unit.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "offload/staging.h"
#include "optim/update_rule.h"
#include "zero/gather_prefetcher.h"
#include "zero/grad_reducer.h"
#include "zero/overwrite_observer.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::zero {

// The store of a unit's master and optimizer states, and the device that updates them.
struct OptimizerPlacement {
  offload::ShardStore* states = nullptr;
  const optim::UpdateRule* rule = nullptr;  // for tensors on `device`
  torch::Device device = torch::kCPU;
};

class ShardedOptimizer {
 public:
  struct Options {
    // Elements that are updated at once; rounded down to a multiple of UpdateRule::kChunkAlignment,
    // at least one of it.
    int64_t tile_elements = int64_t{1} << 24;
    bool decay_vectors = true;  // false: weight decay skips norm weights and biases
    // Copies gradients to the device that updates a unit, and lets a GPU update beside its current
    // stream. Null if all gradients are there already and the current stream updates.
    std::shared_ptr<offload::Staging> staging = nullptr;
  };

  // Uses `places` per unit; only those of trainable units are read. Keeps references to all
  // arguments.
  ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                   std::vector<OptimizerPlacement> places, const Options& options);
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  // Waits for updates in flight, because their outputs may be destroyed next.
  ~ShardedOptimizer();

  // Sets the first fp32 values [range.size()] of this rank's range of a trainable unit, on any
  // device: the master and, rounded to working precision, the parameters.
  void set_master(size_t unit, const torch::Tensor& values);

  // Begins a step: every trainable unit then has a pending update.
  void begin_step(const optim::UpdateStep& step);
  // Returns the pending update of each [unit].
  std::vector<PendingUpdate> updates() const;
  // Returns the chunks of masters and states that these updates will acquire, in forward order.
  Reads reads() const;
  // Updates the unit if it has a pending update; afterwards each working weight equals its master
  // rounded. Throws the errors of the stores; from then on every use of a unit with a pending
  // update throws an Error. Collective if the rule has a norm pass and the unit is sharded, as are
  // the functions below.
  void apply_pending_update(size_t unit);

  // Returns a copy in fp32 of this rank's master of a trainable unit.
  torch::Tensor master(size_t unit);
  // Returns such a copy of a state, indexed as in UpdateRule::state_names().
  torch::Tensor state(size_t unit, size_t index);

  // The arrays that a checkpoint saves for each trainable unit: the master, which may be the
  // working weight itself, then the rule's states.
  struct Array {
    std::string name;  // "master", "exp_avg"
    torch::Dtype dtype;
  };
  std::vector<Array> arrays(size_t unit) const;
  // Returns a copy of this rank's range [range.size()] of an array, in its dtype, on the CPU.
  torch::Tensor array(size_t unit, size_t index);
  // Sets an array's values [range.size()], of any dtype, on the CPU; for the master, does the same
  // as set_master(). The values may be the array's own memory.
  void set_array(size_t unit, size_t index, const torch::Tensor& values);

  // Returns an array for other threads to read, like offload::ShardStore::in_place().
  torch::Tensor in_place(size_t unit, size_t index);
  // Acquires a tile of an array for reading, on the device that updates the unit.
  offload::ChunkLease read(size_t unit, size_t index, const Range& tile);
  // Returns the tiles of this rank's range of a unit, as an update processes them.
  std::vector<Range> tiles(size_t unit) const;
  // Sets the observer of updates, called before one changes a tile; null: none. set_array() does
  // not call it.
  void set_observer(OverwriteObserver* observer) { observer_ = observer; }

  // Returns the bytes of masters and states in their stores.
  offload::StoreBytes bytes() const;

 private:
  // Indices of a unit's shards in its store. Without a master shard the parameters are the master.
  struct UnitShards {
    std::vector<size_t> states;
    std::optional<size_t> master;
    std::vector<optim::ParamGroupRange> group_ranges;  // from the shard's first element
    std::vector<optim::OffsetSpan> offsets;            // offsets of params_.range()
    std::vector<size_t> all() const;
  };
  // A TilePass is the accesses of one pass over tiles.
  struct TilePass {
    offload::Access states, master;
    bool reads_gradient;
  };
  // A tile with the leases that keep it in memory.
  struct AcquiredTile {
    std::vector<offload::ChunkLease> leases;  // leases of states and master
    offload::ChunkLease gradient;
    std::vector<torch::Tensor> states;
    optim::UpdateRule::Chunk tile;
    std::vector<optim::ParamGroupRange> group_ranges;
  };

  std::set<offload::ShardStore*> stores() const;
  void add(size_t unit);
  void fill_states(size_t unit);
  void reserve_staging();
  void update_unit(size_t unit, const torch::Tensor& working);
  torch::Tensor norm_ratios(size_t unit, const optim::UpdateRule::NormPass& norms,
                            const torch::Tensor& working);
  AcquiredTile acquire_tile(size_t unit, const Range& tile, const torch::Tensor& working,
                            const TilePass& pass);
  void for_each_tile(size_t unit, const std::function<void(const Range&)>& visit) const;
  offload::ChunkLease gradient(size_t unit, const Range& tile);
  // Returns the shard of one of arrays(); unset if the working weights are the master.
  std::optional<size_t> find_shard(size_t unit, size_t index) const;
  torch::Tensor copy_shard(size_t unit, size_t shard);
  // Acquires a tile of a shard, ordered on the current stream after the unit's last update.
  offload::ChunkLease acquire(size_t unit, size_t shard, const Range& tile, offload::Access access);

  const UnitPlan& plan_;
  ParamStore& params_;
  GradReducer& grads_;
  std::vector<OptimizerPlacement> places_;
  OverwriteObserver* observer_ = nullptr;
  int64_t tile_elements_;
  std::shared_ptr<offload::Staging> staging_;
  std::vector<UnitShards> shards_;
  std::vector<bool> pending_;  // [unit]: true if step_ is pending
  // [unit]: event after which values on the device have the last update; null: they have it now.
  std::vector<device::StreamEvent> updated_;
  std::optional<size_t> updating_;  // the unit in update, or whose update has thrown
  optim::UpdateStep step_;          // the last step
  device::StreamEvent idle_;        // event after which no work uses pending units on the device
};

}  // namespace zeroth::zero
