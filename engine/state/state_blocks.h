// State blocks: a rank's saved values, divided into blocks that are written at a time, each within
// one tile of an update.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "device/tensor.h"
#include "engine/state/run_state.h"
#include "offload/shard_store.h"
#include "zero/dtype.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Calls `visit` for each parameter in `range` of the unit's flat buffer, with the slot and the
// range of the slot's elements.
void for_each_part(const zero::Unit& unit, const zero::Range& range,
                   const std::function<void(const zero::Slot&, const zero::Range&)>& visit);

struct StateBlock {
  // A SliceRange is the values of the block that belong to one StateSlice.
  struct SliceRange {
    size_t piece = 0;
    int64_t first = 0;   // of the slice
    int64_t begin = 0;   // of the block
    int64_t size = 0;    // of the slice
    int64_t repeat = 1;  // slice's values for each one of the block; the last may have fewer
  };
  size_t unit = 0;
  size_t array = 0;  // index in OptimizerStates::arrays()
  torch::Dtype dtype = torch::kFloat;
  zero::Range tile;   // in this rank's owned range: the elements that an update processes at once
  zero::Range range;  // this block, in the same coordinates
  int64_t per_value = 1;  // elements for each value (zero::OptimizerStates::Array::block)
  std::vector<SliceRange> parts;

  int64_t num_values() const { return range.size() / per_value; }
  int64_t bytes() const { return num_values() * zero::element_bytes(dtype); }
  // Returns the block's values in those of its tile.
  torch::Tensor of_tile(const torch::Tensor& values) const {
    return values.narrow(0, (range.begin - tile.begin) / per_value, num_values());
  }
  // Writes `values`, the block's, into the sink.
  void write(const torch::Tensor& values, StateSink& sink) const;
};

// Returns the blocks that form slices_to_save(), in forward order: unit by unit, tile by tile, then
// array by array.
std::vector<StateBlock> blocks_to_save(const ShardedState& held, int64_t max_bytes = 4 << 20);

// Returns the block's elements in their store, if that is plain CPU memory; undefined otherwise.
torch::Tensor in_place(const ShardedState& held, const StateBlock& block);

// A TileReader reads the tiles of blocks, each once if its blocks come one after the other: a tile
// of offloaded values may be copied to the device that updates it.
class TileReader {
 public:
  // Keeps a reference to `held`.
  explicit TileReader(const ShardedState& held) : held_(held) {}

  // Returns the values of the block's tile, as OptimizerStates::read() does; valid until the next
  // call.
  const torch::Tensor& read(const StateBlock& block);

 private:
  const ShardedState& held_;
  std::optional<std::tuple<size_t, size_t, int64_t>> leased_;  // unit, array, begin of the tile
  offload::ChunkLease lease_;
};

}  // namespace zeroth::engine
