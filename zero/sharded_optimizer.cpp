#include "zero/sharded_optimizer.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "offload/staging.h"
#include "zero/grad_reducer.h"
#include "zero/param_store.h"
#include "zero/parameter_index.h"
#include "zero/unit.h"

namespace zeroth::zero {

using comm::MeshDim;
using offload::Access;

namespace {

// Returns rows of which each is the sum over all slots that hold slices of its parameter.
torch::Tensor sum_slices(const FlatLayout& layout, const torch::Tensor& rows) {
  std::map<std::string, int64_t> first_of;
  std::vector<int64_t> first;  // [slot]
  for (const Slot& slot : layout.slots()) {
    first.push_back(first_of.try_emplace(slot.global.name, std::ssize(first)).first->second);
  }
  if (first_of.size() == first.size()) return rows;
  const torch::Tensor index = at::tensor(first, torch::kLong).to(rows.device());
  return at::index_select(at::index_add(at::zeros_like(rows), 0, index, rows), 0, index);
}

}  // namespace

static_assert(FlatLayout::kAlignment % optim::UpdateRule::kChunkAlignment == 0);

ShardedOptimizer::ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                                   std::vector<OptimizerPlacement> places,
                                   const OptimizerOptions& options)
    : plan_(plan),
      params_(params),
      grads_(grads),
      states_(plan, params, std::move(places), options),
      staging_(options.staging),
      elements_(plan.units.size()),
      pending_(plan.units.size(), false) {
  std::vector<std::vector<optim::OffsetSpan>> offsets = element_offsets(plan);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    elements_[unit].offsets = std::move(offsets[unit]);
    if (!plan.units[unit].is_trained_here()) continue;
    ZEROTH_CHECK(grads.range(unit) == params.range(unit),
                 "unit {}: gradient and parameter shards differ", plan.units[unit].name);
    elements_[unit].group_ranges = group_ranges(unit, options.decay_vectors);
  }
  reserve_staging();
}

ShardedOptimizer::~ShardedOptimizer() {
  if (staging_) staging_->copies().drain();
}

// A rule with a norm pass needs the range of each parameter; others only tell apart what decays.
std::vector<optim::ParamGroupRange> ShardedOptimizer::group_ranges(size_t unit,
                                                                   bool decay_vectors) const {
  const FlatLayout& layout = plan_.units[unit].layout;
  const Range own = params_.range(unit);
  if (states_.placement(unit).rule->norm_pass() == nullptr) {
    if (decay_vectors) return {{0, own.size(), /*decays=*/true}};
    return layout.param_group_ranges(own);
  }
  std::vector<optim::ParamGroupRange> ranges = layout.parameter_ranges(own);
  for (optim::ParamGroupRange& range : ranges) range.decays = range.decays || decay_vectors;
  return ranges;
}

// Reserves staging for what an update copies to its device: full shards of parameters, tiles of
// gradients.
void ShardedOptimizer::reserve_staging() {
  if (!staging_) return;
  const auto width = static_cast<int64_t>(c10::elementSize(params_.dtype()));
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (!plan_.units[unit].is_trained_here()) continue;
    const torch::Device where = states_.placement(unit).device;
    const int64_t numel = params_.range(unit).size();
    if (where.is_cpu()) staging_->reserve(where, numel * width);
    const torch::Tensor grad = grads_.grad(unit);
    if (!grad.defined() || where.is_cpu() || grad.device() == where) continue;
    staging_->reserve(where, std::min(numel, states_.tile_elements(unit)) *
                                 static_cast<int64_t>(grad.element_size()));
  }
}

void ShardedOptimizer::begin_step(const optim::UpdateStep& step) {
  step_ = step;
  if (staging_) idle_ = staging_->copies().record_event();
  for (size_t unit = 0; unit < pending_.size(); ++unit) {
    if (!plan_.units[unit].is_trained_here()) continue;
    ZEROTH_CHECK(!pending_[unit], "unit {}: its last update is still pending",
                 plan_.units[unit].name);
    pending_[unit] = true;
  }
}

std::vector<PendingUpdate> ShardedOptimizer::updates() const {
  std::vector<PendingUpdate> updates(pending_.size(), PendingUpdate::kNone);
  for (size_t unit = 0; unit < pending_.size(); ++unit) {
    if (!pending_[unit]) continue;
    updates[unit] =
        states_.shards(unit).master ? PendingUpdate::kOverwrite : PendingUpdate::kInPlace;
  }
  return updates;
}

offload::Reads ShardedOptimizer::reads() const {
  offload::Reads reads;
  for (size_t unit = 0; unit < pending_.size(); ++unit) {
    if (!pending_[unit]) continue;
    const OptimizerPlacement& placement = states_.placement(unit);
    const auto& [states, master] = states_.shards(unit);
    const int passes = placement.rule->norm_pass() == nullptr ? 1 : 2;
    for (int pass = 0; pass < passes; ++pass) {
      for (const Range& tile : states_.tiles(unit)) {
        for (const OptimizerStates::Shard& shard : states) {
          reads[placement.states].push_back(OptimizerStates::chunk(shard, tile));
        }
        if (master) reads[placement.states].push_back(OptimizerStates::chunk(*master, tile));
      }
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
  const torch::Device where = states_.placement(unit).device;
  const auto work = [&] {
    const Access access = states_.shards(unit).master ? Access::kWrite : Access::kReadWrite;
    const offload::ChunkLease working = params_.acquire_shard(unit, where, access, idle_);
    update_unit(unit, working.tensor());
  };
  device::StreamEvent written;
  if (staging_ && where == params_.device()) {
    written = staging_->copies().run_on_side_stream(
        {idle_}, work);  // tiles are copied beside the forward pass
  } else {
    work();
  }
  updating_.reset();
  pending_[unit] = false;
  states_.mark_updated(unit, written);
  params_.mark_updated(unit, written);
}

void ShardedOptimizer::update_unit(size_t unit, const torch::Tensor& working) {
  const optim::UpdateRule& rule = *states_.placement(unit).rule;
  TilePass pass = {Access::kReadWrite, Access::kReadWrite, /*reads_gradient=*/true};
  torch::Tensor ratios;
  if (const optim::UpdateRule::NormPass* const norms = rule.norm_pass()) {
    ratios = norm_ratios(unit, *norms, working);
    pass = {Access::kRead, Access::kReadWrite, /*reads_gradient=*/false};
  }
  for (const Range& tile : states_.tiles(unit)) {
    AcquiredTile acquired = acquire_tile(unit, tile, working, pass);
    acquired.tile.ratios = ratios;
    rule.apply_param_groups(acquired.tile, step_, acquired.group_ranges);
  }
}

torch::Tensor ShardedOptimizer::norm_ratios(size_t unit, const optim::UpdateRule::NormPass& norms,
                                            const torch::Tensor& working) {
  const FlatLayout& layout = plan_.units[unit].layout;
  const torch::Device where = states_.placement(unit).device;
  const auto parameters = static_cast<int64_t>(layout.slots().size());
  torch::Tensor sums =
      at::zeros({parameters, 2}, torch::TensorOptions(where).dtype(torch::kDouble));
  for (const Range& tile : states_.tiles(unit)) {
    const AcquiredTile acquired = acquire_tile(
        unit, tile, working, {Access::kReadWrite, Access::kRead, /*reads_gradient=*/true});
    norms.sum(acquired.tile, step_, acquired.group_ranges, sums);
  }
  const torch::Tensor own = sums.to(params_.device());
  return norms.ratios(global_sums(plan_.units[unit], own, params_.mesh()).to(where));
}

ShardedOptimizer::AcquiredTile ShardedOptimizer::acquire_tile(size_t unit, const Range& tile,
                                                              const torch::Tensor& working,
                                                              const TilePass& pass) {
  const auto& [states, master] = states_.shards(unit);
  AcquiredTile acquired;
  std::vector<torch::Tensor> elementwise, maxima;
  for (const OptimizerStates::Shard& shard : states) {
    acquired.leases.push_back(states_.acquire(unit, shard, tile, pass.states));
    acquired.states.push_back(acquired.leases.back().tensor());
    (shard.block == 1 ? elementwise : maxima).push_back(acquired.states.back());
  }
  const torch::Tensor weights = working.narrow(0, tile.begin, tile.size());
  acquired.tile = {.master = weights,
                   .grad = torch::Tensor(),
                   .states = elementwise,
                   .first_element = tile.begin,
                   .offsets = elements_[unit].offsets,
                   .maxima = maxima};
  if (master) {
    acquired.leases.push_back(states_.acquire(unit, *master, tile, pass.master));
    acquired.tile.master = acquired.leases.back().tensor();
    acquired.tile.copy = weights;
  }
  if (pass.reads_gradient) {
    // A gradient on the CPU is complete, so it needs no idle event; one on the device is updated
    // there.
    const torch::Tensor grad = grads_.grad(unit).narrow(0, tile.begin, tile.size());
    acquired.gradient =
        staging_ ? staging_->lease(grad, states_.placement(unit).device, Access::kRead, /*idle=*/{})
                 : offload::ChunkLease(grad);
    acquired.tile.grad = acquired.gradient.tensor();
  }
  for (const auto& [begin, end, decays, parameter] : elements_[unit].group_ranges) {
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

torch::Tensor global_sums(const Unit& unit, torch::Tensor own, const comm::DeviceMesh& mesh) {
  const torch::Tensor sums = sum_slices(unit.layout, own);
  const std::string what = "norms of " + unit.label();
  const bool cut = unit.owned_range().size() < unit.layout.numel();
  if (unit.num_replicas == mesh.layout().shape()[MeshDim::kTp]) {
    if (cut)
      mesh.shard_group(unit.num_replicas).all_reduce(sums, comm::ReduceOp::kSum, what).wait();
    return sums;
  }
  // If parameters are not cut over dp, every replica has the slice's sum: one of them contributes
  // it.
  if (!cut && mesh.coordinate(MeshDim::kTp) % unit.num_replicas != 0) sums.zero_();
  comm::Group& ranks =
      mesh.group(cut ? comm::MeshDims{MeshDim::kDp, MeshDim::kTp} : comm::MeshDims{MeshDim::kTp});
  ranks.all_reduce(sums, comm::ReduceOp::kSum, what).wait();
  return sums;
}

}  // namespace zeroth::zero
