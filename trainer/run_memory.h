// What a planned run takes of memory, before anything of it is allocated.
#pragma once

#include <optional>

#include "engine/activation_probe.h"
#include "engine/memory_check.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// What the plan's model comes to with a configuration. `chain`: what activations take. Throws an
// Error that names the key where the configuration cannot work with the model.
engine::Outline outline_of(const RunPlan& plan, const configs::Config& config,
                           const std::optional<engine::ChainBytes>& chain = std::nullopt);

// Refers to the plan.
engine::RunMemory run_memory(const RunPlan& plan, const engine::MachineRoom& room,
                             const std::optional<engine::ChainBytes>& chain = std::nullopt);

}  // namespace zeroth::trainer
