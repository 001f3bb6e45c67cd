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
    if (!unit.is_saved || !unit.is_counted) continue;
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
    if (held.plan.units[u].is_trained_here()) held.optimizer.apply_pending_update(u);
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
    if (!held.plan.units[u].is_saved || !held.plan.units[u].is_held) return 0;
    if (weights_only || held.plan.units[u].coded) return 1;
    return held.optimizer.states().arrays(u).size();
  };
  bool requantized = false;
  const auto elements = [&](size_t u) { return held.plan.units[u].shard().size(); };
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
    if (!weights_only && held.plan.units[u].coded && held.plan.units[u].is_held) {
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
      // Those of the first stage, whatever the ranks of another one would begin with.
      mesh.group({comm::MeshDim::kPp}).broadcast(value, /*root=*/0, "initial values").wait();
      mesh.shard_group(unit.num_replicas).broadcast(value, /*root=*/0, "initial values").wait();
      source->put(unit.layout.slots()[i], value.to(torch::kCPU));
    }
  }
  return source;
}

namespace {

// A UnitLoader reads this rank's range of units from a source.
class UnitLoader {
 public:
  // Reserves memory for the largest of `units`.
  UnitLoader(const ShardedState& held, const std::vector<size_t>& units, const OnRead& on_read)
      : held_(held), on_read_(on_read), link_(device::make_host_link(held.params.device(), true)) {
    int64_t largest = 0;
    for (const size_t unit : units) {
      const int64_t size = held.params.range(unit).size();
      all_ += size;
      if (!reads_in_place(unit))
        largest = std::max(largest, size * zero::element_bytes(dtype(unit)));
    }
    // One buffer serves all units: allocations between buffers that come and go would fragment the
    // heap. A GPU copies ten times as fast from page-locked memory.
    buffer_ = link_->memory.zeros(largest, torch::kByte);
  }

  // Reads frozen values into their place, and values that get a master in fp32.
  void load(size_t unit, model::WeightSource& source) {
    const zero::Range range = held_.params.range(unit);
    if (held_.plan.units[unit].trainable) {
      const torch::Tensor values = buffer(unit, range.size());
      read(unit, source, values);
      held_.optimizer.states().write(unit, 0, values);
      return;
    }
    {
      const offload::ChunkLease lease = held_.optimizer.states().overwrite_frozen(unit);
      const torch::Tensor values =
          reads_in_place(unit) ? lease.tensor() : buffer(unit, range.size());
      read(unit, source, values);
      if (!reads_in_place(unit)) lease.tensor().copy_(values);
    }
    held_.params.mark_updated(unit);
  }

 private:
  bool reads_in_place(size_t unit) const {
    return !held_.plan.units[unit].trainable && held_.params.device().is_cpu();
  }
  torch::Dtype dtype(size_t unit) const {
    return held_.plan.units[unit].trainable ? torch::kFloat : held_.params.dtype(unit);
  }
  torch::Tensor buffer(size_t unit, int64_t size) const {
    const torch::Dtype type = dtype(unit);
    return buffer_.narrow(0, 0, size * zero::element_bytes(type)).view(type);
  }

  void read(size_t unit_index, model::WeightSource& source, torch::Tensor values) {
    const zero::Unit& unit = held_.plan.units[unit_index];
    const zero::Range range = held_.params.range(unit_index);
    values.zero_();  // padding, too
    for (size_t i = 0; i < unit.layout.slots().size(); ++i) {
      const zero::Slot& slot = unit.layout.slots()[i];
      source.check(slot.global.name, slot.global.slice.shape);
      const zero::Range part = unit.layout.overlap(i, range);
      if (part.size() == 0) continue;
      const torch::Tensor values_of_slot =
          values.narrow(0, slot.offset + part.begin - range.begin, part.size());
      source.read({slot.global.name, slot.global.slice, part.begin}, values_of_slot);
      require_range(slot.name, values_of_slot, held_.params.dtype(unit_index));
      done_ += part.size();
      if (on_read_) on_read_(done_, all_);
    }
  }

  const ShardedState& held_;
  const OnRead& on_read_;
  std::shared_ptr<device::HostLink> link_;
  torch::Tensor buffer_;
  int64_t done_ = 0, all_ = 0;
};

}  // namespace

bool load_values(const ShardedState& held, model::WeightSource& source, LoadedUnits units,
                 const std::function<bool()>& should_stop, const OnRead& on_read) {
  const torch::NoGradGuard no_grad;
  std::vector<size_t> loaded;
  for (size_t unit = 0; unit < held.plan.units.size(); ++unit) {
    if (units == LoadedUnits::kAll || !held.plan.units[unit].is_saved) loaded.push_back(unit);
  }
  UnitLoader loader(held, loaded, on_read);
  for (const size_t unit : loaded) {
    if (should_stop()) return false;  // asked once per unit of the chain, as on all ranks
    if (held.plan.units[unit].is_held) loader.load(unit, source);
  }
  return true;
}

}  // namespace zeroth::engine
