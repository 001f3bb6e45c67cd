// An optimizer that applies an update rule to this rank's shard of every unit.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "optim/update_rule.h"
#include "zero/gather_prefetcher.h"
#include "zero/optimizer_states.h"

namespace zeroth::zero {

class GradReducer;
struct Unit;

// An OverwriteObserver is called before an update changes values that a checkpoint saves.
class OverwriteObserver {
 public:
  virtual ~OverwriteObserver() = default;
  // Called before elements `tile` of this rank's range of the unit change; on a GPU, work queued on
  // the current stream after this call changes them. `arrays`: the values that they still have, in
  // the order of OptimizerStates::arrays(), on the device that updates the unit. A rule with a norm
  // pass causes a second call before its second pass, when states have changed already.
  virtual void before_update(size_t unit, const Range& tile,
                             const std::vector<torch::Tensor>& arrays) = 0;
};

class ShardedOptimizer {
 public:
  // Makes the states, with these `places` and options. Keeps references to `plan`, `params` and
  // `grads`, and those of the states.
  ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                   std::vector<OptimizerPlacement> places, const OptimizerOptions& options);
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  // Waits for updates in flight, because their outputs may be destroyed next.
  ~ShardedOptimizer();

  // Returns the masters and states; those of a unit are up to date after apply_pending_update().
  OptimizerStates& states() { return states_; }

  // Begins a step: every trainable unit then has a pending update.
  void begin_step(const optim::UpdateStep& step);
  // Returns the pending update of each [unit].
  std::vector<PendingUpdate> updates() const;
  // Returns the chunks of masters and states that these updates will acquire, in forward order.
  offload::Reads reads() const;
  // Updates the unit if it has a pending update; afterwards each working weight equals its master
  // rounded. Throws the errors of the stores; from then on every use of a unit with a pending
  // update throws an Error. Collective if the rule has a norm pass and the unit is sharded.
  void apply_pending_update(size_t unit);
  // Sets the observer of updates, called before one changes a tile; null: none.
  void set_observer(OverwriteObserver* observer) { observer_ = observer; }

 private:
  // The elements of this rank's range of a unit.
  struct UnitElements {
    std::vector<optim::ParamGroupRange> group_ranges;  // from the range's first element
    std::vector<optim::OffsetSpan> offsets;
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

  std::vector<optim::ParamGroupRange> group_ranges(size_t unit, bool decay_vectors) const;
  void reserve_staging();
  void update_unit(size_t unit, const torch::Tensor& working);
  torch::Tensor norm_ratios(size_t unit, const optim::UpdateRule::NormPass& norms,
                            const torch::Tensor& working);
  AcquiredTile acquire_tile(size_t unit, const Range& tile, const torch::Tensor& working,
                            const TilePass& pass);

  const UnitPlan& plan_;
  ParamStore& params_;
  GradReducer& grads_;
  OptimizerStates states_;
  OverwriteObserver* observer_ = nullptr;
  std::shared_ptr<offload::Staging> staging_;
  std::vector<UnitElements> elements_;
  std::vector<bool> pending_;       // [unit]: true if step_ is pending
  std::optional<size_t> updating_;  // the unit in update, or whose update has thrown
  optim::UpdateStep step_;          // the last step
  device::StreamEvent idle_;        // event after which no work uses pending units on the device
};

// Returns each row of `own` summed over the slot's global parameter: over ranks, and over the
// unit's other slots that hold a slice of it. `own` is [slots, n] on the mesh's device, each row
// summed over the part of the slot that this rank owns; it is overwritten. Elements with replicas
// on several ranks count once. The result is the same on all ranks that hold a part. Collective if
// another rank holds a part.
torch::Tensor global_sums(const Unit& unit, torch::Tensor own, const comm::DeviceMesh& mesh);

}  // namespace zeroth::zero
