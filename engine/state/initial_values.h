// Initial values of a model: from a source for parameters on the meta device, otherwise from the
// blocks themselves.
#pragma once

#include <functional>
#include <memory>

#include "comm/device_mesh.h"
#include "engine/state/run_state.h"
#include "model/block.h"
#include "model/weight_source.h"
#include "zero/param_store.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Returns the blocks' own values, broadcast from the first rank that holds the same ones: rank 0,
// unless ranks share layers, where a block holds this rank's slices. The blocks' parameters must
// hold values. Collective. Call it before a ParamStore takes over the parameters.
std::shared_ptr<model::WeightSource> values_of_blocks(const model::Blocks& blocks,
                                                      comm::DeviceMesh& mesh);

// Returns whether any parameter is on the meta device, and so has no values.
bool has_meta_parameters(const model::Blocks& blocks);

// Reads only this rank's range of every unit, into masters and parameters. Calls `should_stop`
// before each unit, and returns false once it returns true; its results must be the same on all
// ranks.
bool load_values(
    const zero::UnitPlan& plan, model::WeightSource& source, zero::ParamStore& store,
    zero::ShardedOptimizer& optimizer,
    const std::function<bool()>& should_stop = [] { return false; }, const OnRead& on_read = {});

}  // namespace zeroth::engine
