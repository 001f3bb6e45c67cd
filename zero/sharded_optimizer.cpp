#include "zero/sharded_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "zero/element_offsets.h"
#include "zero/global_sums.h"
#include "zero/offload_plan.h"

namespace zeroth::zero {

using offload::Access;

namespace {

int64_t aligned_tile(int64_t elements) {
  constexpr int64_t kAlignment = optim::UpdateRule::kChunkAlignment;
  return std::max(elements / kAlignment, int64_t{1}) * kAlignment;
}

torch::Tensor part(const torch::Tensor& tensor, const Range& range) {
  return tensor.narrow(0, range.begin, range.size());
}

// Copies `values`, which may be the leased memory itself.
void write_values(const offload::ChunkLease& lease, const torch::Tensor& values) {
  const torch::Tensor target = lease.tensor();
  if (target.const_data_ptr() != values.const_data_ptr()) target.copy_(values);
}

}  // namespace

static_assert(FlatLayout::kAlignment % optim::UpdateRule::kChunkAlignment == 0);

std::vector<size_t> ShardedOptimizer::UnitShards::all() const {
  std::vector<size_t> shards = states;
  if (master) shards.push_back(*master);
  return shards;
}

ShardedOptimizer::ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                                   std::vector<OptimizerPlacement> places, const Options& options)
    : plan_(plan),
      params_(params),
      grads_(grads),
      places_(std::move(places)),
      tile_elements_(aligned_tile(options.tile_elements)),
      staging_(options.staging),
      shards_(plan.units.size()),
      pending_(plan.units.size(), false),
      updated_(plan.units.size()) {
  std::vector<std::vector<optim::OffsetSpan>> offsets = element_offsets(plan);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    shards_[unit].offsets = std::move(offsets[unit]);
    if (!plan.units[unit].trainable) continue;
    add(unit);
    const Range own = grads.range(unit);
    const std::vector<optim::ParamGroupRange> whole = {{0, own.size(), /*decays=*/true}};
    shards_[unit].group_ranges =
        options.decay_vectors ? whole : plan.units[unit].layout.param_group_ranges(own);
    if (places_[unit].rule->norm_pass() == nullptr) continue;
    shards_[unit].group_ranges = plan.units[unit].layout.parameter_ranges(own);
    for (optim::ParamGroupRange& group_range : shards_[unit].group_ranges) {
      group_range.decays = group_range.decays || options.decay_vectors;
    }
  }
  for (size_t unit = 0; unit < plan.units.size(); ++unit) fill_states(unit);
  reserve_staging();
}

ShardedOptimizer::~ShardedOptimizer() {
  if (staging_) staging_->drain();
}

// Reserves staging for what an update copies to its device: full shards of parameters, tiles of
// gradients.
void ShardedOptimizer::reserve_staging() {
  if (!staging_) return;
  const auto width = static_cast<int64_t>(c10::elementSize(params_.dtype()));
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    const torch::Device where = places_[unit].device;
    const int64_t numel = params_.range(unit).size();
    if (where.is_cpu()) staging_->reserve(where, numel * width);
    const torch::Tensor grad = grads_.grad(unit);
    if (!grad.defined() || where.is_cpu() || grad.device() == where) continue;
    staging_->reserve(where,
                      std::min(numel, tile_elements_) * static_cast<int64_t>(grad.element_size()));
  }
}

void ShardedOptimizer::add(size_t unit) {
  ZEROTH_CHECK(grads_.range(unit) == params_.range(unit),
               "unit {}: gradient and parameter shards differ", plan_.units[unit].name);
  const auto& [store, rule, device] = places_[unit];
  const int64_t numel = params_.range(unit).size();
  const UpdateArrays arrays = update_arrays(*rule, params_.dtype());
  for (int64_t i = 0; i < arrays.states; ++i) {
    shards_[unit].states.push_back(store->add(numel, arrays.state));
  }
  if (arrays.master) shards_[unit].master = store->add(numel, *arrays.master);
}

// Stores hold zeros initially.
void ShardedOptimizer::fill_states(size_t unit) {
  if (shards_[unit].states.empty() || places_[unit].rule->initial_state() == 0) return;
  for_each_tile(unit, [&](const Range& tile) {
    for (const size_t shard : shards_[unit].states) {
      acquire(unit, shard, tile, Access::kWrite)
          .tensor()
          .fill_(places_[unit].rule->initial_state());
    }
  });
}

void ShardedOptimizer::for_each_tile(size_t unit,
                                     const std::function<void(const Range&)>& visit) const {
  const int64_t numel = params_.range(unit).size();
  for (int64_t begin = 0; begin < numel; begin += tile_elements_) {
    visit({begin, std::min(begin + tile_elements_, numel)});
  }
}

offload::ChunkLease ShardedOptimizer::acquire(size_t unit, size_t shard, const Range& tile,
                                              Access access) {
  if (updated_[unit]) staging_->wait_event(std::exchange(updated_[unit], {}));
  return places_[unit].states->acquire({shard, tile.begin, tile.end}, places_[unit].device, access);
}

void ShardedOptimizer::set_master(size_t unit, const torch::Tensor& values) {
  offload::ChunkLease lease = params_.acquire_shard(unit, places_[unit].device, Access::kWrite);
  if (const auto shard = shards_[unit].master) {
    for_each_tile(unit, [&](const Range& tile) {
      const offload::ChunkLease master = acquire(unit, *shard, tile, Access::kWrite);
      write_values(master, part(values, tile));
      // Round where the update is made: LibTorch would round the CPU's values on the CPU, into
      // pageable memory, from which a GPU copies slowly.
      part(lease.tensor(), tile).copy_(master.tensor());
    });
  } else {
    write_values(lease, values);
  }
  lease = {};
  params_.mark_updated(unit);
}

void ShardedOptimizer::begin_step(const optim::UpdateStep& step) {
  step_ = step;
  if (staging_) idle_ = staging_->record_event();
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    ZEROTH_CHECK(!pending_[unit], "unit {}: its last update is still pending",
                 plan_.units[unit].name);
    pending_[unit] = true;
  }
}

std::vector<PendingUpdate> ShardedOptimizer::updates() const {
  std::vector<PendingUpdate> updates(shards_.size(), PendingUpdate::kNone);
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (pending_[unit])
      updates[unit] = shards_[unit].master ? PendingUpdate::kOverwrite : PendingUpdate::kInPlace;
  }
  return updates;
}

Reads ShardedOptimizer::reads() const {
  Reads reads;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!pending_[unit]) continue;
    const int passes = places_[unit].rule->norm_pass() == nullptr ? 1 : 2;
    for (int pass = 0; pass < passes; ++pass) {
      for_each_tile(unit, [&](const Range& tile) {
        for (const size_t shard : shards_[unit].all()) {
          reads[places_[unit].states].push_back({shard, tile.begin, tile.end});
        }
      });
    }
  }
  return reads;
}

void ShardedOptimizer::apply_pending_update(size_t unit) {
  if (!pending_[unit]) return;
  // Some of its tiles have the update, so it cannot be applied again.
  if (updating_) {
    throw Error("an error interrupted the update of {}: its values are partly updated",
                plan_.units[*updating_].label());
  }
  updating_ = unit;
  const torch::NoGradGuard no_grad;
  const auto work = [&] {
    const Access access = shards_[unit].master ? Access::kWrite : Access::kReadWrite;
    const offload::ChunkLease working =
        params_.acquire_shard(unit, places_[unit].device, access, idle_);
    update_unit(unit, working.tensor());
  };
  device::StreamEvent written;
  if (staging_ && places_[unit].device == params_.device()) {
    written =
        staging_->run_on_side_stream({idle_}, work);  // tiles are copied beside the forward pass
  } else {
    work();
  }
  updating_.reset();
  pending_[unit] = false;
  updated_[unit] = written;
  params_.mark_updated(unit, written);
}

void ShardedOptimizer::update_unit(size_t unit, const torch::Tensor& working) {
  const optim::UpdateRule& rule = *places_[unit].rule;
  TilePass pass = {Access::kReadWrite, Access::kReadWrite, /*reads_gradient=*/true};
  torch::Tensor ratios;
  if (const optim::UpdateRule::NormPass* const norms = rule.norm_pass()) {
    ratios = norm_ratios(unit, *norms, working);
    pass = {Access::kRead, Access::kReadWrite, /*reads_gradient=*/false};
  }
  for_each_tile(unit, [&](const Range& tile) {
    AcquiredTile acquired = acquire_tile(unit, tile, working, pass);
    acquired.tile.ratios = ratios;
    rule.apply_param_groups(acquired.tile, step_, acquired.group_ranges);
  });
}

torch::Tensor ShardedOptimizer::norm_ratios(size_t unit, const optim::UpdateRule::NormPass& norms,
                                            const torch::Tensor& working) {
  const FlatLayout& layout = plan_.units[unit].layout;
  const torch::Device where = places_[unit].device;
  const auto parameters = static_cast<int64_t>(layout.slots().size());
  torch::Tensor sums =
      at::zeros({parameters, 2}, torch::TensorOptions(where).dtype(torch::kDouble));
  for_each_tile(unit, [&](const Range& tile) {
    const AcquiredTile acquired = acquire_tile(
        unit, tile, working, {Access::kReadWrite, Access::kRead, /*reads_gradient=*/true});
    norms.sum(acquired.tile, step_, acquired.group_ranges, sums);
  });
  const torch::Tensor own = sums.to(params_.device());
  return norms.ratios(global_sums(plan_.units[unit], own, params_.mesh()).to(where));
}

ShardedOptimizer::AcquiredTile ShardedOptimizer::acquire_tile(size_t unit, const Range& tile,
                                                              const torch::Tensor& working,
                                                              const TilePass& pass) {
  const UnitShards& shards = shards_[unit];
  AcquiredTile acquired;
  for (const size_t shard : shards.states) {
    acquired.leases.push_back(acquire(unit, shard, tile, pass.states));
    acquired.states.push_back(acquired.leases.back().tensor());
  }
  const torch::Tensor weights = part(working, tile);
  acquired.tile = {.master = weights,
                   .grad = torch::Tensor(),
                   .states = acquired.states,
                   .first_element = tile.begin,
                   .offsets = shards.offsets};
  if (shards.master) {
    acquired.leases.push_back(acquire(unit, *shards.master, tile, pass.master));
    acquired.tile.master = acquired.leases.back().tensor();
    acquired.tile.copy = weights;
  }
  if (pass.reads_gradient) {
    acquired.gradient = gradient(unit, tile);
    acquired.tile.grad = acquired.gradient.tensor();
  }
  for (const auto& [begin, end, decays, parameter] : shards.group_ranges) {
    const Range both = {std::max(begin, tile.begin), std::min(end, tile.end)};
    if (both.size() <= 0) continue;
    acquired.group_ranges.push_back(
        {both.begin - tile.begin, both.end - tile.begin, decays, parameter});
  }
  if (observer_ != nullptr) {
    std::vector<torch::Tensor> arrays = {acquired.tile.master};
    arrays.insert(arrays.end(), acquired.states.begin(), acquired.states.end());
    observer_->before_update(unit, tile, arrays);
  }
  return acquired;
}

offload::ChunkLease ShardedOptimizer::gradient(size_t unit, const Range& tile) {
  const torch::Tensor grad = part(grads_.grad(unit), tile);
  if (!staging_) return offload::ChunkLease(grad);
  // A gradient on the CPU is complete, so it needs no idle event; one on the device is updated
  // there.
  return staging_->lease(grad, places_[unit].device, Access::kRead, /*idle=*/{});
}

std::set<offload::ShardStore*> ShardedOptimizer::stores() const {
  std::set<offload::ShardStore*> stores;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (plan_.units[unit].trainable) stores.insert(places_[unit].states);
  }
  return stores;
}

offload::StoreBytes ShardedOptimizer::bytes() const {
  offload::StoreBytes sum;
  for (const offload::ShardStore* store : stores()) {
    const offload::StoreBytes bytes = store->bytes();
    sum.device += bytes.device;
    sum.host += bytes.host;
    sum.file += bytes.file;
  }
  return sum;
}

std::vector<ShardedOptimizer::Array> ShardedOptimizer::arrays(size_t unit) const {
  const optim::UpdateRule& rule = *places_[unit].rule;
  const UpdateArrays types = update_arrays(rule, params_.dtype());
  std::vector<Array> arrays = {{"master", types.master.value_or(params_.dtype())}};
  for (const std::string_view name : rule.state_names()) {
    arrays.push_back({std::string(name), types.state});
  }
  return arrays;
}

torch::Tensor ShardedOptimizer::array(size_t unit, size_t index) {
  const torch::Tensor values = index == 0 ? master(unit) : state(unit, index - 1);
  return values.to(torch::kCPU, arrays(unit).at(index).dtype);
}

void ShardedOptimizer::set_array(size_t unit, size_t index, const torch::Tensor& values) {
  apply_pending_update(unit);
  const torch::NoGradGuard no_grad;
  if (index == 0) return set_master(unit, values);
  const size_t shard = shards_[unit].states.at(index - 1);
  for_each_tile(unit, [&](const Range& tile) {
    write_values(acquire(unit, shard, tile, Access::kWrite), part(values, tile));
  });
}

std::optional<size_t> ShardedOptimizer::find_shard(size_t unit, size_t index) const {
  return index == 0 ? shards_[unit].master : shards_[unit].states.at(index - 1);
}

torch::Tensor ShardedOptimizer::in_place(size_t unit, size_t index) {
  const auto shard = find_shard(unit, index);
  return shard ? places_[unit].states->in_place(*shard) : params_.in_place(unit);
}

offload::ChunkLease ShardedOptimizer::read(size_t unit, size_t index, const Range& tile) {
  if (const auto shard = find_shard(unit, index)) return acquire(unit, *shard, tile, Access::kRead);
  const auto lease = std::make_shared<offload::ChunkLease>(
      params_.acquire_shard(unit, places_[unit].device, Access::kRead));
  return offload::ChunkLease(part(lease->tensor(), tile), [lease] {});
}

std::vector<Range> ShardedOptimizer::tiles(size_t unit) const {
  std::vector<Range> tiles;
  for_each_tile(unit, [&](const Range& tile) { tiles.push_back(tile); });
  return tiles;
}

torch::Tensor ShardedOptimizer::copy_shard(size_t unit, size_t shard) {
  const torch::Tensor copy =
      at::empty({params_.range(unit).size()}, torch::TensorOptions(places_[unit].device));
  for_each_tile(unit, [&](const Range& tile) {
    part(copy, tile).copy_(acquire(unit, shard, tile, Access::kRead).tensor());
  });
  return copy;
}

torch::Tensor ShardedOptimizer::state(size_t unit, size_t index) {
  apply_pending_update(unit);
  return copy_shard(unit, shards_[unit].states.at(index));
}

torch::Tensor ShardedOptimizer::master(size_t unit) {
  apply_pending_update(unit);
  if (const auto shard = shards_[unit].master) return copy_shard(unit, *shard);
  return params_.acquire_shard(unit, places_[unit].device, Access::kRead)
      .tensor()
      .to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace zeroth::zero
