// DeepSpeed's OneCycle: rate and momentum rise and fall against each other once, then decay. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "configs/config.h"

namespace zeroth::optim {

// The values that update `update` (from 0) sees; see configs::OneCycleConfig.
double one_cycle_lr(const configs::OneCycleConfig& config, int64_t update);
// Needs config.cycle_momentum.
std::array<double, 2> one_cycle_betas(const configs::OneCycleConfig& config, int64_t update);

}  // namespace zeroth::optim
