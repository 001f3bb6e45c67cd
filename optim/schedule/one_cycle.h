// DeepSpeed's OneCycle: rate and momentum rise and fall in opposite directions once, then decay.
// Pure.
#pragma once

#include <array>
#include <cstdint>

#include "configs/config.h"

namespace zeroth::optim {

// Returns the rate that update `update` (from 0) uses; see configs::OneCycleConfig.
double one_cycle_lr(const configs::OneCycleConfig& config, int64_t update);
// Returns the betas of an update. Requires config.cycle_momentum.
std::array<double, 2> one_cycle_betas(const configs::OneCycleConfig& config, int64_t update);

}  // namespace zeroth::optim
