#include "engine/state/run_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/state/state_blocks.h"
#include "zero/dtype.h"
#include "zero/param_store.h"
#include "zero/parameter_index.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

void set_array(const ShardedState& held, size_t unit, size_t index, const torch::Tensor& values) {
  if (held.plan.units[unit].trainable) return held.optimizer.set_array(unit, index, values);
  const auto lease = held.params.acquire_shard(unit, held.params.device(), offload::Access::kWrite);
  const torch::Tensor weights = lease.tensor();
  if (weights.const_data_ptr() != values.const_data_ptr()) weights.copy_(values);
  held.params.mark_updated(unit);
}

StateSlice make_slice(const zero::Slot& slot, const zero::ShardedOptimizer::Array& array,
                      const zero::Range& part) {
  return {.parameter = slot.global.name,
          .state = array.name,
          .dtype = array.dtype,
          .box = zero::slice_of(slot),
          .begin = part.begin,
          .end = part.end};
}

// Loads into the array's store directly if that is plain CPU memory, otherwise through `spare`.
void load_array(const ShardedState& held, StateSource& source, size_t u, size_t index,
                torch::Tensor& spare) {
  const zero::Unit& unit = held.plan.units[u];
  const auto array = kept_arrays(held, u).at(index);
  const zero::Range owned_range = unit.owned_range();
  torch::Tensor values = in_place(held, u, index);
  if (!values.defined()) {
    const int64_t bytes = owned_range.size() * zero::element_bytes(array.dtype);
    if (!spare.defined() || spare.numel() < bytes) spare = at::empty({bytes}, torch::kUInt8);
    values = spare.narrow(0, 0, bytes).view(array.dtype);
  }
  int64_t filled = 0;
  const auto fill_to = [&](int64_t begin) {  // zeroes padding
    if (begin > filled) values.narrow(0, filled, begin - filled).zero_();
  };
  for_each_part(unit, owned_range, [&](const zero::Slot& slot, const zero::Range& part) {
    const int64_t begin = slot.offset + part.begin - owned_range.begin;
    fill_to(begin);
    source.read(make_slice(slot, array, part), values.narrow(0, begin, part.size()));
    filled = begin + part.size();
  });
  fill_to(owned_range.size());
  set_array(held, u, index, values);
}

}  // namespace

std::vector<StateSlice> slices_to_save(const ShardedState& held) {
  std::vector<StateSlice> pieces;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    const zero::Unit& unit = held.plan.units[u];
    for (const auto& array : kept_arrays(held, u)) {
      for_each_part(unit, unit.shard(), [&](const zero::Slot& slot, const zero::Range& part) {
        pieces.push_back(make_slice(slot, array, part));
      });
    }
  }
  return pieces;
}

std::vector<StateSlice> global_states(const ShardedState& held) {
  std::vector<StateSlice> pieces;
  for (const zero::GlobalParameter& parameter : zero::global_parameters(held.plan)) {
    if (parameter.numel() == 0) continue;
    for (const auto& array : kept_arrays(held, parameter.slices.front().unit)) {
      pieces.push_back({.parameter = parameter.name,
                        .state = array.name,
                        .dtype = array.dtype,
                        .box = TensorSlice::full(parameter.shape),
                        .begin = 0,
                        .end = parameter.numel()});
    }
  }
  return pieces;
}

int64_t bytes_to_save(const ShardedState& held) {
  int64_t bytes = 0;
  for (const StateSlice& piece : slices_to_save(held)) {
    bytes += piece.size() * zero::element_bytes(piece.dtype);
  }
  return bytes;
}

void apply_pending_updates(const ShardedState& held) {
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    if (held.plan.units[u].trainable) held.optimizer.apply_pending_update(u);
  }
}

void save_states(const ShardedState& held, StateSink& sink) {
  const torch::NoGradGuard no_grad;
  apply_pending_updates(held);
  sink.begin(slices_to_save(held));
  for (const StateBlock& block : blocks_to_save(held)) {
    torch::Tensor values = in_place(held, block);
    offload::ChunkLease tile;
    if (!values.defined()) {
      tile = read_tile(held, block);
      values = tile.tensor()
                   .narrow(0, block.range.begin - block.tile.begin, block.range.size())
                   .to(torch::kCPU);
    }
    block.write(values, sink);
  }
}

void load_states(const ShardedState& held, StateSource& source, bool weights_only,
                 const OnRead& on_read) {
  const torch::NoGradGuard no_grad;
  apply_pending_updates(held);
  const auto arrays = [&](size_t u) { return weights_only ? 1 : kept_arrays(held, u).size(); };
  const auto elements = [&](size_t u) { return held.plan.units[u].layout.shard_numel(); };
  int64_t done = 0, all = 0;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    all += elements(u) * static_cast<int64_t>(arrays(u));
  }
  torch::Tensor spare;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    for (size_t i = 0; i < arrays(u); ++i) {
      load_array(held, source, u, i, spare);
      done += elements(u);
      if (on_read) on_read(done, all);
    }
  }
}

}  // namespace zeroth::engine
