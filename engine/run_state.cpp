#include "engine/run_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/state_blocks.h"
#include "zero/catalogue.h"
#include "zero/dtype.h"
#include "zero/param_store.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

void set_array(const HeldValues& held, size_t unit, size_t index, const torch::Tensor& values) {
  if (held.plan.units[unit].trainable) return held.optimizer.set_array(unit, index, values);
  const auto lease = held.params.share(unit, held.params.device(), offload::Access::kWrite);
  const torch::Tensor weights = lease.tensor();
  if (weights.const_data_ptr() != values.const_data_ptr()) weights.copy_(values);
  held.params.updated(unit);
}

StatePiece piece_of(const zero::Slot& slot, const zero::ShardedOptimizer::Array& array,
                    const zero::Range& part) {
  return {.parameter = slot.whole.name,
          .state = array.name,
          .dtype = array.dtype,
          .box = zero::box_of(slot),
          .begin = part.begin,
          .end = part.end};
}

// Into where it rests, where that is plain memory of the CPU; else through `spare`.
void load_array(const HeldValues& held, StateSource& source, size_t u, size_t index,
                torch::Tensor& spare) {
  const zero::Unit& unit = held.plan.units[u];
  const auto array = kept_arrays(held, u).at(index);
  const zero::Range share = unit.share();
  torch::Tensor values = in_place(held, u, index);
  if (!values.defined()) {
    const int64_t bytes = share.size() * zero::width_of(array.dtype);
    if (!spare.defined() || spare.numel() < bytes) spare = at::empty({bytes}, torch::kUInt8);
    values = spare.narrow(0, 0, bytes).view(array.dtype);
  }
  int64_t filled = 0;
  const auto fill_to = [&](int64_t begin) {  // with padding
    if (begin > filled) values.narrow(0, filled, begin - filled).zero_();
  };
  for_each_part(unit, share, [&](const zero::Slot& slot, const zero::Range& part) {
    const int64_t begin = slot.offset + part.begin - share.begin;
    fill_to(begin);
    source.read(piece_of(slot, array, part), values.narrow(0, begin, part.size()));
    filled = begin + part.size();
  });
  fill_to(share.size());
  set_array(held, u, index, values);
}

}  // namespace

std::vector<StatePiece> pieces_to_save(const HeldValues& held) {
  std::vector<StatePiece> pieces;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    const zero::Unit& unit = held.plan.units[u];
    for (const auto& array : kept_arrays(held, u)) {
      for_each_part(unit, unit.shard(), [&](const zero::Slot& slot, const zero::Range& part) {
        pieces.push_back(piece_of(slot, array, part));
      });
    }
  }
  return pieces;
}

std::vector<StatePiece> whole_states(const HeldValues& held) {
  std::vector<StatePiece> pieces;
  for (const zero::WholeParameter& parameter : zero::whole_parameters(held.plan)) {
    if (parameter.numel() == 0) continue;
    for (const auto& array : kept_arrays(held, parameter.boxes.front().unit)) {
      pieces.push_back({.parameter = parameter.name,
                        .state = array.name,
                        .dtype = array.dtype,
                        .box = TensorBox::whole(parameter.shape),
                        .begin = 0,
                        .end = parameter.numel()});
    }
  }
  return pieces;
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
  bring_up_to_date(held);
  sink.begin(pieces_to_save(held));
  for (const StateBlock& block : blocks_to_save(held)) {
    torch::Tensor values = in_place(held, block);
    offload::TileLease tile;
    if (!values.defined()) {
      tile = read_tile(held, block);
      values = tile.tensor()
                   .narrow(0, block.range.begin - block.tile.begin, block.range.size())
                   .to(torch::kCPU);
    }
    block.write(values, sink);
  }
}

void load_states(const HeldValues& held, StateSource& source, bool weights_only,
                 const OnRead& on_read) {
  const torch::NoGradGuard no_grad;
  bring_up_to_date(held);
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
