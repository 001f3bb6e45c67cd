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
  struct Options {
    // Elements that are updated at once; rounded down to a multiple of UpdateRule::kTileAlignment,
    // at least one of it.
    int64_t tile_elements = int64_t{1} << 24;
    bool decay_vectors = true;  // false: weight decay leaves norm weights and biases out
  };

  // Keeps references to all of them.
  ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                   offload::ShardStore& states, const optim::UpdateRule& rule,
                   const Options& options);

  // Gives this rank's range of a trainable unit its first fp32 values [range.size()]: the master,
  // and rounded to working precision the parameters.
  void set_master(size_t unit, const torch::Tensor& values);

  // Applies an update to every trainable unit in forward order. Afterwards each working weight
  // equals its master rounded.
  void step(const optim::UpdateRule::Step& step);

  // A copy of this rank's fp32 master of a trainable unit, for tests and checkpoints.
  torch::Tensor master(size_t unit);
  // The same of a state, numbered as in UpdateRule::state_names().
  torch::Tensor state(size_t unit, size_t index);

 private:
  // Numbers of a unit's shards in the store. Without a master shard the fp32 parameters are the
  // master.
  struct UnitShards {
    std::vector<size_t> states;
    std::optional<size_t> master;
    std::vector<Run> runs;  // of equal decay, from the shard's first element
  };

  void add_state(size_t unit, int64_t numel);
  void update_tile(size_t unit, const Range& tile, const optim::UpdateRule::Step& step);

  const UnitPlan& plan_;
  ParamStore& params_;
  GradReducer& grads_;
  offload::ShardStore& states_;
  const optim::UpdateRule& rule_;
  int64_t tile_elements_;
  std::vector<UnitShards> shards_;
};

}  // namespace zeroth::zero
