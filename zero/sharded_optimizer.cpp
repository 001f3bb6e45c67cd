#include "zero/sharded_optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::zero {

namespace {

int64_t aligned_tile(int64_t elements) {
  constexpr int64_t kAlignment = optim::UpdateRule::kTileAlignment;
  return std::max(elements / kAlignment, int64_t{1}) * kAlignment;
}

// The runs of this rank's range, counted from its first element; one where all decays alike.
std::vector<Run> decay_runs(const FlatLayout& layout, const Range& range, bool decay_vectors) {
  if (decay_vectors) return {{{0, range.size()}, /*matrices=*/true}};
  std::vector<Run> runs = layout.runs(range);
  for (Run& run : runs) {
    run.range.begin -= range.begin;
    run.range.end -= range.begin;
  }
  return runs;
}

}  // namespace

static_assert(FlatLayout::kAlignment % optim::UpdateRule::kTileAlignment == 0);

ShardedOptimizer::ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                                   offload::ShardStore& states, const optim::UpdateRule& rule,
                                   const Options& options)
    : plan_(plan),
      params_(params),
      grads_(grads),
      states_(states),
      rule_(rule),
      tile_elements_(aligned_tile(options.tile_elements)) {
  shards_.resize(plan.units.size());
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (!plan.units[unit].trainable) continue;
    ZEROTH_CHECK(grads.range(unit) == params.shard_range(unit),
                 "unit {}: gradient and parameter shards differ", plan.units[unit].name);
    const int64_t numel = params.shard(unit).numel();
    for (size_t i = 0; i < rule.state_names().size(); ++i) add_state(unit, numel);
    if (params.shard(unit).scalar_type() != torch::kFloat) shards_[unit].master = states.add(numel);
    shards_[unit].runs =
        decay_runs(plan.units[unit].layout, grads.range(unit), options.decay_vectors);
  }
}

void ShardedOptimizer::add_state(size_t unit, int64_t numel) {
  const size_t shard = states_.add(numel);
  shards_[unit].states.push_back(shard);
  if (rule_.initial_state() == 0) return;
  const offload::Tile all{shard, 0, numel};
  states_.borrow(all, params_.shard(unit).device(), offload::Access::kReadWrite)
      .tensor()
      .fill_(rule_.initial_state());
}

void ShardedOptimizer::set_master(size_t unit, const torch::Tensor& values) {
  if (const auto shard = shards_[unit].master) {
    const offload::Tile all{*shard, 0, values.numel()};
    states_.borrow(all, values.device(), offload::Access::kReadWrite).tensor().copy_(values);
  }
  params_.shard(unit).copy_(values);
  params_.updated(unit);
}

void ShardedOptimizer::step(const optim::UpdateRule::Step& step) {
  const torch::NoGradGuard no_grad;
  optim::UpdateRule::Step without_decay = step;
  without_decay.weight_decay = 0;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    for (const Run& run : shards_[unit].runs) {
      for (int64_t begin = run.range.begin; begin < run.range.end;) {
        // Tiles lie on one grid whatever the runs are.
        const int64_t next = (begin / tile_elements_ + 1) * tile_elements_;
        const int64_t end = std::min(next, run.range.end);
        update_tile(unit, {begin, end}, run.matrices ? step : without_decay);
        begin = end;
      }
    }
    params_.updated(unit);
  }
}

void ShardedOptimizer::update_tile(size_t unit, const Range& tile,
                                   const optim::UpdateRule::Step& step) {
  const torch::Tensor working = params_.shard(unit).narrow(0, tile.begin, tile.size());
  // A copy only where gradients accumulate in less than fp32.
  const torch::Tensor grad = grads_.grad(unit).narrow(0, tile.begin, tile.size()).to(torch::kFloat);
  const auto borrow = [&](size_t shard) {
    return states_.borrow({shard, tile.begin, tile.end}, working.device(),
                          offload::Access::kReadWrite);
  };
  std::vector<offload::TileLease> leases;
  std::vector<torch::Tensor> states;
  for (const size_t shard : shards_[unit].states) {
    leases.push_back(borrow(shard));
    states.push_back(leases.back().tensor());
  }
  torch::Tensor master = working;
  if (const auto shard = shards_[unit].master) {
    leases.push_back(borrow(*shard));
    master = leases.back().tensor();
  }
  rule_.apply({master, grad, states}, step);
  if (!master.is_same(working)) working.copy_(master);
}

torch::Tensor ShardedOptimizer::state(size_t unit, size_t index) {
  const torch::Tensor working = params_.shard(unit);
  const offload::Tile all{shards_[unit].states.at(index), 0, working.numel()};
  return states_.borrow(all, working.device(), offload::Access::kRead).tensor().clone();
}

torch::Tensor ShardedOptimizer::master(size_t unit) {
  const torch::Tensor working = params_.shard(unit);
  const auto shard = shards_[unit].master;
  if (!shard) return working.clone();
  const offload::Tile all{*shard, 0, working.numel()};
  return states_.borrow(all, working.device(), offload::Access::kRead).tensor().clone();
}

}  // namespace zeroth::zero
