#include "zero/optimizer_states.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "zero/offload_plan.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::zero {

using offload::Access;

namespace {

torch::Tensor part(const torch::Tensor& tensor, const Range& range) {
  return tensor.narrow(0, range.begin, range.size());
}

// Copies `values`, which may be the leased memory itself.
void write_values(const offload::ChunkLease& lease, const torch::Tensor& values) {
  const torch::Tensor target = lease.tensor();
  if (target.const_data_ptr() != values.const_data_ptr()) target.copy_(values);
}

}  // namespace

OptimizerStates::OptimizerStates(const UnitPlan& plan, ParamStore& params,
                                 std::vector<OptimizerPlacement> places,
                                 const OptimizerOptions& options)
    : plan_(plan),
      params_(params),
      places_(std::move(places)),
      tile_elements_(options.tile_elements),
      staging_(options.staging),
      shards_(plan.units.size()),
      updated_(plan.units.size()) {
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (!plan.units[unit].is_trained_here()) continue;
    const auto& [store, rule, device] = places_[unit];
    const int64_t numel = params_.range(unit).size();
    const UpdateArrays arrays = update_arrays(*rule, params_.dtype(unit));
    for (const auto& state : arrays.states) {
      ZEROTH_CHECK(numel % state.block == 0, "{} elements in blocks of {}", numel, state.block);
      shards_[unit].states.push_back({store->add(state.entries(numel), state.dtype), state.block});
    }
    if (arrays.master) shards_[unit].master = {store->add(numel, *arrays.master)};
  }
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    // Stores hold zeros initially.
    if (shards_[unit].states.empty() || places_[unit].rule->initial_state() == 0) continue;
    for (const Range& tile : tiles(unit)) {
      for (const Shard& shard : shards_[unit].states) {
        acquire(unit, shard, tile, Access::kWrite)
            .tensor()
            .fill_(places_[unit].rule->initial_state());
      }
    }
  }
}

std::vector<OptimizerStates::Array> OptimizerStates::arrays(size_t unit) const {
  if (!plan_.units[unit].trainable) return {{"weight", params_.dtype(unit)}};
  const optim::UpdateRule& rule = *places_[unit].rule;
  const UpdateArrays types = update_arrays(rule, params_.dtype(unit));
  std::vector<Array> arrays = {{"master", types.master.value_or(params_.dtype(unit))}};
  for (const auto& state : types.states) {
    arrays.push_back({std::string(state.name), state.dtype, state.block});
  }
  return arrays;
}

std::vector<Range> OptimizerStates::tiles(size_t unit) const {
  const int64_t numel = params_.range(unit).size();
  if (!plan_.units[unit].is_held) return {};
  if (!plan_.units[unit].trainable) return {{0, numel}};
  std::vector<Range> tiles;
  const int64_t elements = tile_elements(unit);
  for (int64_t begin = 0; begin < numel; begin += elements) {
    tiles.push_back({begin, std::min(begin + elements, numel)});
  }
  return tiles;
}

int64_t OptimizerStates::tile_elements(size_t unit) const {
  const int64_t alignment = places_[unit].rule->alignment();
  return std::max(tile_elements_ / alignment, int64_t{1}) * alignment;
}

offload::ShardChunk OptimizerStates::chunk(const Shard& shard, const Range& tile) {
  const Range entries = Array{{}, {}, shard.block}.entries(tile);
  return {shard.index, entries.begin, entries.end};
}

std::optional<OptimizerStates::Shard> OptimizerStates::find_shard(size_t unit, size_t index) const {
  return index == 0 ? shards_[unit].master : shards_[unit].states.at(index - 1);
}

offload::ChunkLease OptimizerStates::acquire(size_t unit, const Shard& shard, const Range& tile,
                                             Access access) {
  if (updated_[unit]) staging_->copies().wait_event(std::exchange(updated_[unit], {}));
  return places_[unit].states->acquire(chunk(shard, tile), places_[unit].device, access);
}

offload::ChunkLease OptimizerStates::acquire_weights(size_t unit, Access access) {
  const bool trainable = plan_.units[unit].trainable;
  return params_.acquire_shard(unit, trainable ? places_[unit].device : params_.device(), access);
}

offload::ChunkLease OptimizerStates::read(size_t unit, size_t index, const Range& tile) {
  if (const auto shard = find_shard(unit, index)) return acquire(unit, *shard, tile, Access::kRead);
  const auto lease = std::make_shared<offload::ChunkLease>(acquire_weights(unit, Access::kRead));
  return offload::ChunkLease(part(lease->tensor(), tile), lease);
}

torch::Tensor OptimizerStates::in_place(size_t unit, size_t index) {
  const auto shard = find_shard(unit, index);
  return shard ? places_[unit].states->in_place(shard->index) : params_.in_place(unit);
}

void OptimizerStates::write(size_t unit, size_t index, const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  if (index == 0) return write_weights(unit, values);
  const Shard& shard = shards_[unit].states.at(index - 1);
  for (const Range& tile : tiles(unit)) {
    const offload::ShardChunk own = chunk(shard, tile);
    write_values(acquire(unit, shard, tile, Access::kWrite), part(values, {own.begin, own.end}));
  }
}

offload::ChunkLease OptimizerStates::overwrite_frozen(size_t unit) {
  ZEROTH_CHECK(!plan_.units[unit].trainable, "{} has a master", plan_.units[unit].name);
  return acquire_weights(unit, Access::kWrite);
}

void OptimizerStates::write_weights(size_t unit, const torch::Tensor& values) {
  offload::ChunkLease weights = acquire_weights(unit, Access::kWrite);
  if (const auto shard = shards_[unit].master) {
    for (const Range& tile : tiles(unit)) {
      const offload::ChunkLease master = acquire(unit, *shard, tile, Access::kWrite);
      write_values(master, part(values, tile));
      // Round where the update is made: LibTorch would round the CPU's values on the CPU, into
      // pageable memory, from which a GPU copies slowly.
      part(weights.tensor(), tile).copy_(master.tensor());
    }
  } else {
    write_values(weights, values);
  }
  weights = {};
  params_.mark_updated(unit);
}

}  // namespace zeroth::zero
