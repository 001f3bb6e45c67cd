// A unit is a flat buffer with its name: what is gathered, reduced and updated at once. A block
// lists the units that it uses; a tied weight is a unit of its own that two blocks list.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "comm/mesh_layout.h"
#include "model/block.h"
#include "zero/flat_layout.h"

namespace zeroth::zero {

// What becomes of a unit's whole buffer.
enum class GatherPolicy {
  kNever,        // every rank owns all of it: it is never gathered
  kAfterUpdate,  // whole on every rank; a share is a range of it; gathered again after an update
  kBeforeUse,    // gathered before use, released after it; only the share rests
};

struct Unit {
  // "layers.3", "layers.3 (on 2 ranks) (frozen)", or a tied weight's own name.
  std::string name;
  bool trainable = true;
  int num_replicas =
      1;  // its holders are comm::DeviceMesh::shard_group(copies): the buffer is cut over them
  int shard_index = 0;  // this rank's number among them
  FlatLayout layout;
  std::vector<torch::Tensor> params;  // the blocks' own tensors, in slot order
  std::vector<size_t> blocks;         // that use it, ascending
  bool begins_gradients = false;      // all of them do: model::Block::accumulates_grads
  GatherPolicy gather_policy = GatherPolicy::kNever;

  // "block 3 (layers.2)", for messages.
  std::string label() const;
  bool is_gathered_before_use() const { return gather_policy == GatherPolicy::kBeforeUse; }
  // No other rank holds it.
  bool is_unsharded() const { return layout.num_shards() == 1; }
  // This rank's shard of the flat buffer.
  Range shard() const { return layout.shard(shard_index); }
  // The range of it that this rank owns: its shard, or all where every holder owns all. Of one size
  // on all ranks.
  Range owned_range() const;
};

// Where a parameter lies in a plan.
struct SlotIndex {
  size_t unit = 0, slot = 0;
};

struct UnitPlan {
  comm::MeshShape shape;                         // of the ranks
  std::vector<Unit> units;                       // in order of first use
  std::vector<std::vector<size_t>> block_units;  // [block] -> indices into units
  std::vector<std::string> block_labels;
  std::vector<SlotIndex>
      parameter_order;  // the parameters in the order in which the blocks list them

  bool trains() const;        // whether any unit is trainable
  bool is_unsharded() const;  // whether this rank holds all of them alone
};

// The first block that has a trainable parameter; the number of blocks where none has.
size_t first_trained_block(const UnitPlan& plan);

// Groups the parameters of every block by (tied or not, trainable or not, which ranks hold the
// same): the plan of `rank`. Without `trains` none is trainable: no unit has gradients, a master or
// optimizer state then. Throws an Error when two blocks have one label, two parameters one name, a
// parameter is not floating point, or a block does not say how ranks of axis tensor share it.
UnitPlan plan_units(const model::Blocks& blocks, const comm::MeshLayout& grid, int rank,
                    bool trains = true);
// The same for this rank of a mesh, and for the first of so many that are all on axis data.
UnitPlan plan_units(const model::Blocks& blocks, const comm::DeviceMesh& mesh, bool trains = true);
UnitPlan plan_units(const model::Blocks& blocks, int data_ranks, bool trains = true);

}  // namespace zeroth::zero
