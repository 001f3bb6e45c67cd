#include "engine/run_state.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

#include "zero/dtype.h"
#include "zero/param_store.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

// Calls `visit` for each parameter's part of `range` of the unit's flat buffer: with the slot, and
// the part as elements of it.
void for_each_part(const zero::Unit& unit, const zero::Range& range,
                   const std::function<void(const zero::Slot&, const zero::Range&)>& visit) {
  const auto& slots = unit.layout.slots();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const zero::Range part = unit.layout.overlap(slot, range);
    if (part.size() > 0) visit(slots[slot], part);
  }
}

// Of each element of the unit: what a checkpoint keeps.
std::vector<zero::ShardedOptimizer::Array> arrays_of(const HeldValues& held, size_t unit) {
  if (held.plan.units[unit].trainable) return held.optimizer.arrays(unit);
  return {{"weight", held.params.dtype()}};
}

torch::Tensor array_of(const HeldValues& held, size_t unit, size_t index) {
  if (held.plan.units[unit].trainable) return held.optimizer.array(unit, index);
  return held.params.share(unit, held.params.device(), offload::Access::kRead)
      .tensor()
      .to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

void set_array(const HeldValues& held, size_t unit, size_t index, const torch::Tensor& values) {
  if (held.plan.units[unit].trainable) return held.optimizer.set_array(unit, index, values);
  held.params.share(unit, held.params.device(), offload::Access::kWrite).tensor().copy_(values);
  held.params.updated(unit);
}

StatePiece piece_of(const zero::Slot& slot, const zero::ShardedOptimizer::Array& array,
                    const zero::Range& part) {
  return {.parameter = slot.name,
          .state = array.name,
          .dtype = array.dtype,
          .shape = slot.shape,
          .begin = part.begin,
          .end = part.end};
}

// Of every unit's range that `range_of` gives.
template <typename RangeOf>
std::vector<StatePiece> pieces_of(const HeldValues& held, const RangeOf& range_of) {
  std::vector<StatePiece> pieces;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    const zero::Unit& unit = held.plan.units[u];
    for (const auto& array : arrays_of(held, u)) {
      for_each_part(unit, range_of(unit), [&](const zero::Slot& slot, const zero::Range& part) {
        pieces.push_back(piece_of(slot, array, part));
      });
    }
  }
  return pieces;
}

// Where every rank owns all, each saves its shard.
std::vector<StatePiece> pieces_to_save(const HeldValues& held) {
  return pieces_of(held, [&](const zero::Unit& unit) { return unit.layout.shard(held.rank); });
}

}  // namespace

std::vector<StatePiece> whole_states(const HeldValues& held) {
  return pieces_of(held, [](const zero::Unit& unit) {
    return zero::Range{0, unit.layout.numel()};
  });
}

int64_t bytes_to_save(const HeldValues& held) {
  int64_t bytes = 0;
  for (const StatePiece& piece : pieces_to_save(held)) {
    bytes += piece.size() * zero::width_of(piece.dtype);
  }
  return bytes;
}

void bring_up_to_date(const HeldValues& held) {
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    if (held.plan.units[u].trainable) held.optimizer.bring_up_to_date(u);
  }
}

void save_states(const HeldValues& held, StateSink& sink) {
  const torch::NoGradGuard no_grad;
  const auto& units = held.plan.units;
  bring_up_to_date(held);
  sink.begin(pieces_to_save(held));
  size_t next = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t first = units[u].share(held.rank).begin;
    for (size_t i = 0; i < arrays_of(held, u).size(); ++i) {
      const torch::Tensor share = array_of(held, u, i);
      for_each_part(units[u], units[u].layout.shard(held.rank),
                    [&](const zero::Slot& slot, const zero::Range& part) {
                      const int64_t begin = slot.offset + part.begin - first;
                      sink.write(next++, share.narrow(0, begin, part.size()));
                    });
    }
  }
}

void load_states(const HeldValues& held, StateSource& source, bool weights_only) {
  const torch::NoGradGuard no_grad;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    const zero::Unit& unit = held.plan.units[u];
    const zero::Range share = unit.share(held.rank);
    const auto arrays = arrays_of(held, u);
    for (size_t i = 0; i < (weights_only ? 1 : arrays.size()); ++i) {
      const torch::Tensor values = at::zeros({share.size()}, arrays[i].dtype);  // padding, too
      for_each_part(unit, share, [&](const zero::Slot& slot, const zero::Range& part) {
        const int64_t begin = slot.offset + part.begin - share.begin;
        source.read(piece_of(slot, arrays[i], part), values.narrow(0, begin, part.size()));
      });
      set_array(held, u, i, values);
    }
  }
}

}  // namespace zeroth::engine
