#include "engine/state/state_blocks.h"

#include <ATen/ops/repeat_interleave.h>

#include <algorithm>
#include <utility>

#include "zero/sharded_optimizer.h"

namespace zeroth::engine {
namespace {

zero::Range intersect(const zero::Range& a, const zero::Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Returns the ranges of slices in a range of the unit. `piece` is the index of its first slice; the
// slices of an array, of one value per `per_value` elements, are in slot order.
std::vector<StateBlock::SliceRange> parts_of(const zero::Unit& unit, const zero::Range& in_unit,
                                             size_t piece, int64_t per_value) {
  std::vector<StateBlock::SliceRange> parts;
  for_each_part(unit, unit.shard(), [&](const zero::Slot& slot, const zero::Range& part) {
    const zero::Range whole = {slot.offset + part.begin, slot.offset + part.end};
    const zero::Range shared = intersect(whole, in_unit);
    if (shared.size() > 0) {
      const bool repeated = per_value > 1 && repeats_maxima(slot);
      const int64_t scale = repeated ? 1 : per_value;
      parts.push_back({.piece = piece,
                       .first = (shared.begin - whole.begin) / scale,
                       .begin = (shared.begin - in_unit.begin) / per_value,
                       .size = (shared.size() + scale - 1) / scale,
                       .repeat = repeated ? per_value : 1});
    }
    ++piece;
  });
  return parts;
}

// Divides what this rank saves of a tile: the part in its shard of the unit, even if every rank
// owns the full unit. `block` is all of the tile.
void divide_tile(const zero::Unit& unit, StateBlock block, size_t first_piece, int64_t max_bytes,
                 std::vector<StateBlock>& blocks) {
  const zero::Range own = unit.shard();
  const int64_t owned_begin = unit.owned_range().begin;
  const zero::Range kept = intersect(block.tile, {own.begin - owned_begin, own.end - owned_begin});
  const int64_t max_elements =
      std::max<int64_t>(max_bytes / zero::element_bytes(block.dtype), 1) * block.per_value;
  for (int64_t begin = kept.begin; begin < kept.end; begin += max_elements) {
    block.range = {begin, std::min(begin + max_elements, kept.end)};
    block.parts = parts_of(unit, {owned_begin + block.range.begin, owned_begin + block.range.end},
                           first_piece, block.per_value);
    if (!block.parts.empty()) blocks.push_back(block);
  }
}

}  // namespace

void for_each_part(const zero::Unit& unit, const zero::Range& range,
                   const std::function<void(const zero::Slot&, const zero::Range&)>& visit) {
  const auto& slots = unit.layout.slots();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const zero::Range part = unit.layout.overlap(slot, range);
    if (part.size() > 0) visit(slots[slot], part);
  }
}

void StateBlock::write(const torch::Tensor& values, StateSink& sink) const {
  for (const SliceRange& part : parts) {
    const int64_t own = (part.size + part.repeat - 1) / part.repeat;
    torch::Tensor of_slice = values.narrow(0, part.begin, own);
    if (part.repeat > 1) {
      of_slice = at::repeat_interleave(of_slice, part.repeat).narrow(0, 0, part.size);
    }
    sink.write(part.piece, part.first, of_slice);
  }
}

std::vector<StateBlock> blocks_to_save(const ShardedState& held, int64_t max_bytes) {
  std::vector<StateBlock> blocks;
  size_t pieces = 0;  // number of slices of earlier units
  for (size_t index = 0; index < held.plan.units.size(); ++index) {
    const zero::Unit& unit = held.plan.units[index];
    if (!unit.is_saved || !unit.is_counted) continue;
    zero::OptimizerStates& states = held.optimizer.states();
    const auto arrays = states.arrays(index);
    size_t parameters = 0;  // parameters of which this rank saves a part
    for_each_part(unit, unit.shard(), [&](const zero::Slot&, const zero::Range&) { ++parameters; });
    for (const zero::Range& tile : states.tiles(index)) {
      for (size_t i = 0; i < arrays.size(); ++i) {
        divide_tile(unit, {index, i, arrays[i].dtype, tile, {}, arrays[i].block, {}},
                    pieces + i * parameters, max_bytes, blocks);
      }
    }
    pieces += arrays.size() * parameters;
  }
  return blocks;
}

torch::Tensor in_place(const ShardedState& held, const StateBlock& block) {
  const torch::Tensor array = held.optimizer.states().in_place(block.unit, block.array);
  if (!array.defined()) return array;
  return array.narrow(0, block.range.begin / block.per_value, block.num_values());
}

const torch::Tensor& TileReader::read(const StateBlock& block) {
  const std::tuple tile(block.unit, block.array, block.tile.begin);
  if (leased_ != tile) {
    leased_.reset();
    lease_ = {};  // The last lease ends before the next one begins.
    lease_ = held_.optimizer.states().read(block.unit, block.array, block.tile);
    leased_ = tile;
  }
  return lease_.tensor();
}

}  // namespace zeroth::engine
