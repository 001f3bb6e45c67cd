// A model's first values: from a source for parameters on the meta device, else from the blocks
// themselves.
#pragma once

#include <functional>
#include <memory>

#include "comm/device_mesh.h"
#include "engine/run_state.h"
#include "model/block.h"
#include "model/weight_source.h"
#include "zero/param_store.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// The blocks' own values, made equal to those of the first rank that holds the same, which is rank
// 0 but where ranks share layers: there a block holds this rank's boxes. For blocks whose
// parameters hold values. Collective. To be called before a ParamStore takes the parameters over.
std::shared_ptr<model::WeightSource> values_of_blocks(const model::Blocks& blocks,
                                                      comm::DeviceMesh& mesh);

// Whether any parameter lies on the meta device, that is without values.
bool has_meta_parameters(const model::Blocks& blocks);

// Reads this rank's range of every unit, and nothing else, into masters and parameters. Asks
// `ends` before each unit, on all ranks alike, and returns false where `ends` did.
bool load_values(
    const zero::UnitPlan& plan, model::WeightSource& source, zero::ParamStore& store,
    zero::ShardedOptimizer& optimizer,
    const std::function<bool()>& should_stop = [] { return false; }, const OnRead& on_read = {});

}  // namespace zeroth::engine
