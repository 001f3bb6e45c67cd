// A unit is a flat buffer with its name: what is gathered, reduced and updated at once. A block
// lists the units that it uses; a tied weight is a unit of its own that two blocks list.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "model/block.h"
#include "zero/flat_layout.h"

namespace zeroth::zero {

// What becomes of a unit's whole buffer.
enum class Retention {
  kWhole,    // every rank owns all of it: it is never gathered
  kRefresh,  // whole on every rank; a share is a range of it; gathered again after an update
  kRelease,  // gathered before use, released after it; only the share rests
};

struct Unit {
  std::string name;  // "layers.3", "layers.3 (frozen)", or a tied weight's own name
  bool trainable = true;
  FlatLayout layout;
  std::vector<torch::Tensor> params;  // the blocks' own tensors, in slot order
  std::vector<size_t> blocks;         // that use it, ascending
  bool begins_gradients = false;      // all of them do: model::Block::delivers_gradients
  Retention retention = Retention::kWhole;

  // "block 3 (layers.2)", for messages.
  std::string label() const;
  bool released() const { return retention == Retention::kRelease; }
  // The range of the flat buffer that a rank owns: its shard, or all where every rank owns all. Of
  // one size on all ranks.
  Range share(int rank) const;
};

struct UnitPlan {
  std::vector<Unit> units;                       // in order of first use
  std::vector<std::vector<size_t>> block_units;  // [block] -> indices into units
  std::vector<std::string> block_labels;

  bool trains() const;  // whether any unit is trainable
};

// The first block that has a trainable parameter; the number of blocks where none has.
size_t first_trained_block(const UnitPlan& plan);

// Groups the parameters of every block by (shared or not, trainable or not). Without `trains` none
// is trainable: no unit has gradients, a master or optimizer state then. Throws an Error when two
// blocks have one label, two parameters one name, or a parameter is not floating point.
UnitPlan plan_units(const model::Blocks& blocks, int num_shards, bool trains = true);

}  // namespace zeroth::zero
