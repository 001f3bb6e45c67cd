// Masters and optimizer states, for tests to compare.
#pragma once

#include <ATen/ops/cat.h>
#include <torch/types.h>

#include <vector>

#include "zero/sharded_optimizer.h"

namespace zeroth::testing {

// Returns a copy in fp32 of this rank's range of an array, indexed as in
// OptimizerStates::arrays(), on the device that updates it, with any pending update.
inline torch::Tensor read_state(zero::ShardedOptimizer& optimizer, size_t unit, size_t index) {
  optimizer.apply_pending_update(unit);
  zero::OptimizerStates& states = optimizer.states();
  std::vector<torch::Tensor> tiles;
  for (const zero::Range& tile : states.tiles(unit)) {
    const offload::ChunkLease lease = states.read(unit, index, tile);
    tiles.push_back(lease.tensor().to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
  return at::cat(tiles);
}

inline torch::Tensor read_master(zero::ShardedOptimizer& optimizer, size_t unit) {
  return read_state(optimizer, unit, 0);
}

}  // namespace zeroth::testing
