// What a rank saves, cut into blocks that are written at a time, each within one tile of an update.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/run_state.h"
#include "offload/shard_store.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Of each element of the unit: what a checkpoint keeps.
std::vector<zero::ShardedOptimizer::Array> kept_arrays(const ShardedState& held, size_t unit);

// Calls `visit` for each parameter's part of `range` of the unit's flat buffer: with the slot, and
// the part as elements of it.
void for_each_part(const zero::Unit& unit, const zero::Range& range,
                   const std::function<void(const zero::Slot&, const zero::Range&)>& visit);

struct StateBlock {
  // Elements of the block that are elements of a piece.
  struct SliceRange {
    size_t piece = 0;
    int64_t first = 0;  // of the piece
    int64_t begin = 0;  // of the block
    int64_t size = 0;
  };
  size_t unit = 0;
  size_t array = 0;  // of kept_arrays()
  torch::Dtype dtype = torch::kFloat;
  zero::Range tile;   // of this rank's share of the unit: what an update takes at once
  zero::Range range;  // likewise: this block
  std::vector<SliceRange> parts;

  int64_t bytes() const;
  // `values`: of the block.
  void write(const torch::Tensor& values, StateSink& sink) const;
};

// What slices_to_save() are made of, in forward order: unit by unit, tile by tile, then array by
// array.
std::vector<StateBlock> blocks_to_save(const ShardedState& held, int64_t max_bytes = 4 << 20);

// This rank's share of one of kept_arrays() where it rests, if that is plain memory of the CPU:
// other threads may read it until an update. Undefined elsewhere.
torch::Tensor in_place(const ShardedState& held, size_t unit, size_t array);
// The same of the block.
torch::Tensor in_place(const ShardedState& held, const StateBlock& block);
// The block's tile to read, on the device that updates it, or that computes with what is frozen.
offload::ChunkLease read_tile(const ShardedState& held, const StateBlock& block);

}  // namespace zeroth::engine
