// A model with adapters: its frozen blocks, the factors that are trained, and their first values.
#pragma once

#include <cstdint>
#include <memory>

#include "model/block.h"
#include "model/hf/lora_plan.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace zeroth::model {

// Freezes the blocks' parameters, except those that the plan trains, and adds its adapters. The
// blocks may be a part of the model.
void add_adapters(const Blocks& blocks, const LoraPlan& plan);

// Returns the spec of the blocks to which the adapters belong: that of the model, unless the head
// gets a weight of its own.
ModelSpec lora_spec(const ModelSpec& spec, const LoraPlan& plan);

// Returns the values of a model with adapters: of the base from `base`, and of what is trained from
// `adapter`, or if that is null from the base and, for factors, drawn with `seed`.
std::unique_ptr<WeightSource> make_lora_source(const LoraPlan& plan,
                                               std::unique_ptr<WeightSource> base,
                                               std::unique_ptr<WeightSource> adapter,
                                               uint64_t seed);

}  // namespace zeroth::model
