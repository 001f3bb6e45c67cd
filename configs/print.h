// The parts of a printed configuration, in ds_config spelling.
#pragma once

#include <nlohmann/json.hpp>

#include "configs/config.h"

namespace zeroth::configs {

nlohmann::ordered_json optimizer_json(const OptimizerConfig& optimizer);

// Null for a constant rate and for what only a flag can ask for.
nlohmann::ordered_json scheduler_json(const SchedulerConfig& scheduler);

}  // namespace zeroth::configs
