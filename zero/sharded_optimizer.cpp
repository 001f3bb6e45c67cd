#include "zero/sharded_optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::zero {

ShardedOptimizer::ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                                   offload::ShardStore& states, const optim::UpdateRule& rule)
    : plan_(plan), params_(params), grads_(grads), states_(states), rule_(rule) {
  shards_.resize(plan.units.size());
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (!plan.units[unit].trainable) continue;
    ZEROTH_CHECK(grads.range(unit) == params.shard_range(unit),
                 "unit {}: gradient and parameter shards differ", plan.units[unit].name);
    const int64_t numel = params.shard(unit).numel();
    for (size_t i = 0; i < rule.state_names().size(); ++i) {
      shards_[unit].states.push_back(states.add(numel));
    }
    if (params.shard(unit).scalar_type() != torch::kFloat) shards_[unit].master = states.add(numel);
  }
}

void ShardedOptimizer::set_master(size_t unit, const torch::Tensor& values) {
  if (const auto shard = shards_[unit].master) {
    const offload::Tile all{*shard, 0, values.numel()};
    states_.borrow(all, values.device(), offload::Access::kReadWrite).tensor().copy_(values);
  }
  params_.shard(unit).copy_(values);
  params_.updated(unit);
}

void ShardedOptimizer::step(int64_t update, double lr, double grad_factor) {
  const torch::NoGradGuard no_grad;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    const int64_t numel = params_.shard(unit).numel();
    for (int64_t begin = 0; begin < numel; begin += kTileElements) {
      update_tile(unit, {begin, std::min(begin + kTileElements, numel)}, update, lr, grad_factor);
    }
    params_.updated(unit);
  }
}

void ShardedOptimizer::update_tile(size_t unit, const Range& tile, int64_t update, double lr,
                                   double grad_factor) {
  const torch::Tensor working = params_.shard(unit).narrow(0, tile.begin, tile.size());
  const torch::Tensor grad = grads_.grad(unit).narrow(0, tile.begin, tile.size());
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
  rule_.apply({master, grad, states}, update, lr, grad_factor);
  if (!master.is_same(working)) working.copy_(master);
}

torch::Tensor ShardedOptimizer::master(size_t unit) {
  const torch::Tensor working = params_.shard(unit);
  const auto shard = shards_[unit].master;
  if (!shard) return working.clone();
  const offload::Tile all{*shard, 0, working.numel()};
  return states_.borrow(all, working.device(), offload::Access::kRead).tensor().clone();
}

}  // namespace zeroth::zero
