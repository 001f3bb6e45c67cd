// A unit is a named flat buffer, which is gathered, reduced and updated as one. A block lists the
// units that it uses; a tied weight is a unit of its own that two blocks list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "comm/mesh_layout.h"
#include "device/tensor.h"
#include "model/block.h"
#include "zero/flat_layout.h"

namespace zeroth::zero {

// The policy for a unit's full buffer.
enum class GatherPolicy {
  kNever,        // every rank owns all of it: it is never gathered
  kAfterUpdate,  // every rank keeps all of it and owns a range; gathered again after an update
  kBeforeUse,    // gathered before use, released after it; only the shard is kept
};

struct Unit {
  // Name: "layers.3", "layers.3 (on 2 ranks) (frozen)", "layers.3 (quantized)", "layers.3 (fp32)",
  // or a tied weight's own name.
  std::string name;
  bool trainable = true;
  // False: the unit is frozen, and neither checkpoints nor saved models hold it.
  bool is_saved = true;
  // The dtype of its frozen elements, if it is not that of the run's other parameters: bytes
  // (uint8) of quantized weights, which are never saved, or fp32 of model::Block::keep_in_fp32().
  std::optional<torch::Dtype> own_dtype = {};
  // True: its optimizer states are 8-bit codes, and slots and shards begin code blocks
  // (optim/coded_states.h).
  bool coded = false;
  // Coordinates in mesh dim pp of the ranks that hold it, ascending: one, or several of a tied
  // weight. `is_held`: this rank holds it; otherwise its range is empty, and its tensors have no
  // memory. `is_counted`: this rank is at the first of them, where norms count it and saves take
  // it.
  std::vector<int> pp_ranks = {0};
  bool is_held = true;
  bool is_counted = true;
  int num_replicas = 1;  // sharded over comm::DeviceMesh::shard_group(num_replicas)
  int shard_index = 0;   // this rank's index in that group
  FlatLayout layout;
  std::vector<torch::Tensor> params;  // the blocks' own tensors, in slot order
  std::vector<size_t> blocks;         // blocks that use it, ascending
  bool begins_gradients = false;      // true if all blocks have model::Block::accumulates_grads
  GatherPolicy gather_policy = GatherPolicy::kNever;

  // Returns the dtype of the buffer; `working` is that of the run's parameters.
  torch::Dtype dtype(torch::Dtype working) const { return own_dtype.value_or(working); }
  bool is_quantized() const { return own_dtype == torch::kByte; }
  // Returns "block 3 (layers.2)", for messages.
  std::string label() const;
  bool is_gathered_before_use() const { return gather_policy == GatherPolicy::kBeforeUse; }
  bool is_tied() const { return blocks.size() > 1; }  // a weight that several blocks use
  // Returns whether no other rank holds it.
  bool is_unsharded() const { return layout.num_shards() == 1; }
  // Returns whether this rank has a gradient of it and updates it.
  bool is_trained_here() const { return trainable && is_held; }
  // Returns the range of the flat buffer that this rank has once the unit is gathered: all of it,
  // or nothing.
  Range full_range() const { return {0, is_held ? layout.numel() : 0}; }
  // Returns this rank's shard of the flat buffer.
  Range shard() const { return is_held ? layout.shard(shard_index) : Range(); }
  // Returns the range that this rank owns: its shard, or all if every rank owns all. The same size
  // on all ranks that hold the unit.
  Range owned_range() const {
    return gather_policy == GatherPolicy::kNever ? full_range() : shard();
  }
};

// The position of a parameter in a plan.
struct SlotIndex {
  size_t unit = 0, slot = 0;
};

struct UnitPlan {
  comm::MeshShape shape;                         // shape of the mesh
  std::vector<Unit> units;                       // units in order of first use
  std::vector<std::vector<size_t>> block_units;  // [block] -> indices into units
  std::vector<std::string> block_labels;
  std::vector<int> block_pp_ranks;  // UnitPlanOptions::block_pp_ranks
  int pp_rank = 0;                  // this rank's coordinate in mesh dim pp
  std::vector<SlotIndex>
      parameter_order;  // the parameters in the order in which the blocks list them

  // Returns whether this rank holds the block.
  bool holds(size_t block) const {
    return block_pp_ranks.empty() || block_pp_ranks[block] == pp_rank;
  }
  // Returns whether any unit is trainable.
  bool trains() const { return std::ranges::any_of(units, &Unit::trainable); }
  // Returns whether no other rank holds any of the units.
  bool is_unsharded() const { return std::ranges::all_of(units, &Unit::is_unsharded); }
};

// Returns the first block that has a trainable parameter; the number of blocks if none has.
size_t first_trained_block(const UnitPlan& plan);

struct UnitPlanOptions {
  // False: no parameter is trainable. No unit has gradients, a master or optimizer state then.
  bool trains = true;
  // False: what a run saves holds its trainable parameters only, as adapters over a base.
  bool saves_frozen = true;
  // Set: the optimizer stores its states as codes, except those of parameters of fewer elements (of
  // the full parameter), which are in units of their own (optim::min_coded_elements()).
  std::optional<int64_t> min_coded_elements = {};
  // Per block: the coordinate in mesh dim pp of the ranks that hold it. Empty: every rank holds
  // every block.
  std::vector<int> block_pp_ranks = {};
};

// Groups the parameters of every block by (tied or not, trainable or not, dtype of their own, coded
// or not, ranks that hold the same) and returns the plan of `rank`. It has the units of the whole
// chain on every rank, in the same order, also those that `rank` does not hold. Throws an Error if
// two blocks have one label, two parameters one name, a parameter is neither floating point nor
// frozen bytes (uint8), one that is kept in fp32 is trainable, or a block does not say how
// tensor-parallel ranks share it.
UnitPlan plan_units(const model::Blocks& blocks, const comm::MeshLayout& grid, int rank,
                    const UnitPlanOptions& options = {});
// Plans the units for this rank of a mesh, and for the first of `data_ranks` ranks that are all on
// dimension dp.
UnitPlan plan_units(const model::Blocks& blocks, const comm::DeviceMesh& mesh,
                    const UnitPlanOptions& options = {});
UnitPlan plan_units(const model::Blocks& blocks, int data_ranks,
                    const UnitPlanOptions& options = {});

}  // namespace zeroth::zero
