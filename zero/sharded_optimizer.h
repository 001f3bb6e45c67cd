// Applies an update rule to this rank's shard of every unit.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/shard_store.h"
#include "optim/update_rule.h"
#include "zero/grad_reducer.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::zero {

class ShardedOptimizer {
 public:
  // Elements that are updated at once. A multiple of UpdateRule::kTileAlignment.
  static constexpr int64_t kTileElements = int64_t{1} << 24;

  // Keeps references to all of them.
  ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                   offload::ShardStore& states, const optim::UpdateRule& rule);

  // Gives this rank's range of a trainable unit its first fp32 values [range.size()]: the master,
  // and rounded to working precision the parameters.
  void set_master(size_t unit, const torch::Tensor& values);

  // Applies update number `update` (from 1) at rate `lr` to every trainable unit in forward order;
  // the gradients are multiplied by `grad_factor` first. Afterwards each working weight equals its
  // master rounded.
  void step(int64_t update, double lr, double grad_factor);

  // A copy of this rank's fp32 master of a trainable unit, for tests and checkpoints.
  torch::Tensor master(size_t unit);

 private:
  // Numbers of a unit's shards in the store. Without a master shard the fp32 parameters are the
  // master.
  struct UnitShards {
    std::vector<size_t> states;
    std::optional<size_t> master;
  };

  void update_tile(size_t unit, const Range& tile, int64_t update, double lr, double grad_factor);

  const UnitPlan& plan_;
  ParamStore& params_;
  GradReducer& grads_;
  offload::ShardStore& states_;
  const optim::UpdateRule& rule_;
  std::vector<UnitShards> shards_;
};

}  // namespace zeroth::zero
