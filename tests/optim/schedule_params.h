// A fixture's schedule parameters, as ds_config.json names them.
#pragma once

#include "configs/config.h"
#include "tests/optim/fixtures.h"

namespace zeroth::optim {

inline configs::OneCycleConfig one_cycle_of(const nlohmann::json& params) {
  configs::OneCycleConfig config;
  config.min_lr = params.value("cycle_min_lr", 0.0);
  config.max_lr = params.value("cycle_max_lr", 0.0);
  config.first_step_size = params.value("cycle_first_step_size", config.first_step_size);
  config.second_step_size = params.value("cycle_second_step_size", config.first_step_size);
  config.first_stair_count = params.value("cycle_first_stair_count", config.first_stair_count);
  config.second_stair_count = params.value("cycle_second_stair_count", config.first_stair_count);
  config.decay_step_size = params.value("decay_step_size", config.decay_step_size);
  config.decay_lr_rate = params.value("decay_lr_rate", config.decay_lr_rate);
  config.cycle_momentum = params.value("cycle_momentum", config.cycle_momentum);
  config.min_momentum = params.value("cycle_min_mom", config.min_momentum);
  config.max_momentum = params.value("cycle_max_mom", config.max_momentum);
  config.decay_momentum_rate = params.value("decay_mom_rate", config.decay_momentum_rate);
  return config;
}

}  // namespace zeroth::optim
