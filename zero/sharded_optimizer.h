// Applies an update rule to this rank's shard of every unit.
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

// Where a unit's master and optimizer states rest, and where they are updated.
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
    bool decay_vectors = true;  // false: weight decay leaves norm weights and biases out
    // Brings gradients to where a unit is updated, and lets a GPU update beside its current stream.
    // Null where all gradients are there already and the current stream updates.
    std::shared_ptr<offload::Staging> staging = nullptr;
  };

  // `places` per unit; only those of trainable ones are read. Keeps references to all of them.
  ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                   std::vector<OptimizerPlacement> places, const Options& options);
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  // Waits for updates that are under way, as what they write may be gone next.
  ~ShardedOptimizer();

  // Gives this rank's range of a trainable unit its first fp32 values [range.size()], on any
  // device: the master, and rounded to working precision the parameters.
  void set_master(size_t unit, const torch::Tensor& values);

  // From now on every trainable unit waits for an update.
  void begin_step(const optim::UpdateStep& step);
  // [unit]: what the unit waits for.
  std::vector<PendingUpdate> updates() const;
  // What these updates will borrow of masters and states, unit by unit in forward order.
  Reads reads() const;
  // Updates the unit if it waits for an update; afterwards each working weight equals its master
  // rounded. Throws what the stores throw; from then on every unit that still waits is an Error.
  // Collective where the rule has a norm pass and the unit is cut, as are those below.
  void apply_pending_update(size_t unit);

  // A copy in fp32 of this rank's master of a trainable unit.
  torch::Tensor master(size_t unit);
  // The same of a state, numbered as in UpdateRule::state_names().
  torch::Tensor state(size_t unit, size_t index);

  // What a checkpoint keeps of each element of a trainable unit: the master, which may be the
  // working weight itself, then the rule's states.
  struct Array {
    std::string name;  // "master", "exp_avg"
    torch::Dtype dtype;
  };
  std::vector<Array> arrays(size_t unit) const;
  // A copy of this rank's range [range.size()] of one of them, in its dtype, on the CPU.
  torch::Tensor array(size_t unit, size_t index);
  // Gives it other values [range.size()], of any dtype, on the CPU; those of the master as
  // set_master() does. They may lie where it rests already.
  void set_array(size_t unit, size_t index, const torch::Tensor& values);

  // It for other threads to read, as offload::ShardStore::in_place().
  torch::Tensor in_place(size_t unit, size_t index);
  // A tile of it to read, where the unit is updated.
  offload::ChunkLease read(size_t unit, size_t index, const Range& tile);
  // This rank's range of a unit, as an update takes it.
  std::vector<Range> tiles(size_t unit) const;
  // Who is asked before an update changes a tile of these; null: nobody. set_array() asks nobody.
  void set_observer(OverwriteObserver* observer) { observer_ = observer; }

  // What masters and states take where they rest.
  offload::StoreBytes bytes() const;

 private:
  // Indices of a unit's shards in its store. Without a master shard the parameters are the master.
  struct UnitShards {
    std::vector<size_t> states;
    std::optional<size_t> master;
    std::vector<optim::ParamGroupRange> stretches;  // from the shard's first element
    std::vector<optim::OffsetSpan> offsets;         // of all that params_.range() has
    std::vector<size_t> all() const;
  };
  // What a pass over tiles does with them.
  struct TilePass {
    offload::Access states, master;
    bool reads_gradient;
  };
  // A tile with what keeps it there.
  struct AcquiredTile {
    std::vector<offload::ChunkLease> leases;  // of states and master
    offload::ChunkLease gradient;
    std::vector<torch::Tensor> states;
    optim::UpdateRule::Chunk tile;
    std::vector<optim::ParamGroupRange> stretches;
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
  // Of one of arrays(); none where the working weights are the master.
  std::optional<size_t> find_shard(size_t unit, size_t index) const;
  torch::Tensor copy_shard(size_t unit, size_t shard);
  // A tile of a shard, ordered on the current stream after the unit's last update.
  offload::ChunkLease acquire(size_t unit, size_t shard, const Range& tile, offload::Access access);

  const UnitPlan& plan_;
  ParamStore& params_;
  GradReducer& grads_;
  std::vector<OptimizerPlacement> places_;
  OverwriteObserver* observer_ = nullptr;
  int64_t tile_elements_;
  std::shared_ptr<offload::Staging> staging_;
  std::vector<UnitShards> shards_;
  std::vector<bool> pending_;  // [unit]: for step_
  // [unit]: behind it what rests on the device has its last update; null: it has it now.
  std::vector<device::StreamEvent> updated_;
  std::optional<size_t> updating_;  // the unit that is updated, or whose update has thrown
  optim::UpdateStep step_;          // the last one
  device::StreamEvent idle_;        // behind it nobody uses what waits on the device
};

}  // namespace zeroth::zero
