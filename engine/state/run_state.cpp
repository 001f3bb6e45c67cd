#include "engine/state/run_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "comm/device_mesh.h"
#include "device/host_link.h"
#include "engine/state/state_blocks.h"
#include "model/weight_source.h"
#include "zero/dtype.h"
#include "zero/param_store.h"
#include "zero/parameter_index.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

// Loads into the array's store directly if that is plain CPU memory, otherwise through `spare`.
void load_array(const ShardedState& held, StateSource& source, size_t u, size_t index,
                torch::Tensor& spare) {
  const zero::Unit& unit = held.plan.units[u];
  zero::OptimizerStates& states = held.optimizer.states();
  const auto array = states.arrays(u).at(index);
  const zero::Range owned_range = unit.owned_range();
  torch::Tensor values = states.in_place(u, index);
  if (!values.defined()) {
    const int64_t bytes = owned_range.size() * zero::element_bytes(array.dtype);
    if (!spare.defined() || spare.numel() < bytes) spare = at::empty({bytes}, torch::kByte);
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
  states.write(u, index, values);
}

// BlockWeights provides the slices that this rank's blocks hold, and no others.
class BlockWeights final : public model::WeightSource {
 public:
  void put(const zero::Slot& slot, const torch::Tensor& value) {
    values_[slot.global.name].emplace_back(slot.global.slice, value);
  }

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    ZEROTH_CHECK(values_.at(name).front().first.shape == shape, "{} has another shape", name);
  }

  void read(const model::ParamSlice& part, torch::Tensor out) override {
    const auto& held = values_.at(part.name);
    const auto same = std::ranges::find(held, part.box, &Held::first);
    ZEROTH_CHECK(same != held.end(), "unexpected slice of {}", part.name);
    out.copy_(same->second.flatten().narrow(0, part.first, out.numel()));
    if (!at::isfinite(out).all().item<bool>())
      throw Error("parameter {} holds a value that is not finite", part.name);
  }

 private:
  using Held = std::pair<TensorSlice, torch::Tensor>;

  std::map<std::string, std::vector<Held>> values_;  // by the global parameter's name
};

void require_range(const std::string& name, const torch::Tensor& values, torch::Dtype working) {
  if (working != torch::kHalf) return;
  constexpr double kLargestHalf = 65504;
  const double largest = values.abs().max().item<double>();
  if (largest > kLargestHalf) {
    throw Error("parameter {} holds {}, beyond the {} that fp16 can hold (bf16 and fp32 can)", name,
                largest, kLargestHalf);
  }
}

}  // namespace

bool repeats_maxima(const zero::Slot& slot) {
  return slot.global.slice != TensorSlice::full(slot.shape());
}

StateSlice make_slice(const zero::Slot& slot, const zero::OptimizerStates::Array& array,
                      const zero::Range& part) {
  StateSlice slice = {.parameter = slot.global.name,
                      .state = array.name,
                      .dtype = array.dtype,
                      .box = slot.global.slice,
                      .begin = part.begin,
                      .end = part.end};
  if (array.block == 1 || repeats_maxima(slot)) return slice;
  const zero::Range all = array.entries({0, slot.numel}), own = array.entries(part);
  slice.box = TensorSlice::full({all.end});
  slice.begin = own.begin;
  slice.end = own.end;
  return slice;
}

std::vector<StateSlice> slices_to_save(const ShardedState& held) {
  std::vector<StateSlice> pieces;
  for (size_t u = 0; u < held.plan.units.size(); ++u) {
    const zero::Unit& unit = held.plan.units[u];
    if (!unit.is_saved) continue;
    for (const auto& array : held.optimizer.states().arrays(u)) {
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
    if (parameter.numel() == 0 || !parameter.is_saved) continue;
    const auto& [unit, index] = parameter.slices.front();
    const zero::Slot& slot = held.plan.units[unit].layout.slots()[index];
    for (const auto& array : held.optimizer.states().arrays(unit)) {
      StateSlice piece = make_slice(slot, array, {0, slot.numel});
      piece.box = TensorSlice::full(piece.box.shape);
      piece.begin = 0;
      piece.end = piece.box.elements();
      pieces.push_back(std::move(piece));
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
  TileReader tiles(held);
  for (const StateBlock& block : blocks_to_save(held)) {
    block.write(block.of_tile(tiles.read(block)).to(torch::kCPU), sink);
  }
}

bool load_states(const ShardedState& held, StateSource& source, bool weights_only,
                 const OnRead& on_read) {
  const torch::NoGradGuard no_grad;
  apply_pending_updates(held);
  // The arrays that are loaded one by one: of coded states, the master.
  const auto arrays = [&](size_t u) -> size_t {
    if (!held.plan.units[u].is_saved) return 0;
    if (weights_only || held.plan.units[u].coded) return 1;
    return held.optimizer.states().arrays(u).size();
  };
  bool requantized = false;
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
    if (!weights_only && held.plan.units[u].coded) {
      requantized = load_coded_states(held, source, u) || requantized;
    }
  }
  return requantized;
}

bool has_meta_parameters(const model::Blocks& blocks) {
  for (const auto& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      if (parameter.is_meta()) return true;
    }
  }
  return false;
}

std::shared_ptr<model::WeightSource> values_of_blocks(const model::Blocks& blocks,
                                                      comm::DeviceMesh& mesh) {
  const torch::NoGradGuard no_grad;
  auto source = std::make_shared<BlockWeights>();
  for (const zero::Unit& unit : zero::plan_units(blocks, mesh).units) {
    for (size_t i = 0; i < unit.params.size(); ++i) {
      const torch::Tensor value = unit.params[i].detach().to(mesh.device()).contiguous();
      mesh.shard_group(unit.num_replicas).broadcast(value, /*root=*/0, "initial values").wait();
      source->put(unit.layout.slots()[i], value.to(torch::kCPU));
    }
  }
  return source;
}

bool load_values(const ShardedState& held, model::WeightSource& source, LoadedUnits units,
                 const std::function<bool()>& should_stop, const OnRead& on_read) {
  const auto& [plan, store, optimizer] = held;
  const torch::NoGradGuard no_grad;
  // One buffer serves all units: allocations between buffers that come and go would fragment the
  // heap. A GPU copies ten times as fast from page-locked memory.
  int64_t largest = 0, done = 0, all = 0;
  std::vector<size_t> loaded;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    if (units == LoadedUnits::kWithoutSaved && plan.units[u].is_saved) continue;
    loaded.push_back(u);
    largest = std::max(largest, store.range(u).size());
    all += store.range(u).size();
  }
  const auto link = device::make_host_link(store.device(), /*pin_memory=*/true);
  const torch::Tensor buffer = link->memory.zeros(largest, torch::kFloat);
  for (const size_t u : loaded) {
    if (should_stop()) return false;
    const zero::Unit& unit = plan.units[u];
    const zero::Range range = store.range(u);
    const torch::Tensor values = buffer.narrow(0, 0, range.size()).zero_();
    for (size_t i = 0; i < unit.layout.slots().size(); ++i) {
      const zero::Slot& slot = unit.layout.slots()[i];
      source.check(slot.global.name, slot.global.slice.shape);
      const zero::Range part = unit.layout.overlap(i, range);
      if (part.size() == 0) continue;
      const torch::Tensor values_of_slot =
          values.narrow(0, slot.offset + part.begin - range.begin, part.size());
      source.read({slot.global.name, slot.global.slice, part.begin}, values_of_slot);
      require_range(slot.name, values_of_slot, store.dtype());
      done += part.size();
      if (on_read) on_read(done, all);
    }
    optimizer.states().write(u, 0, values);
  }
  return true;
}

}  // namespace zeroth::engine
