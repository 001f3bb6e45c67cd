// What a user of offload should know: settings that move nothing in this run.
#pragma once

#include <string>
#include <vector>

#include "engine/memory_check.h"

namespace zeroth::trainer {

// One line each; empty where all that was asked for takes place.
std::vector<std::string> offload_notes(const engine::RunMemory& run);

}  // namespace zeroth::trainer
