// A schedule as flags ask for it.
#pragma once

#include <algorithm>
#include <string>

#include "configs/resolve.h"
#include "optim/schedule/lr_schedule.h"

namespace zeroth::optim {

inline configs::FlagValues flags_for(const std::string& type, double lr,
                                     const std::string& kwargs) {
  configs::FlagValues flags;
  for (const auto& [name, known] : configs::kHfScheduleNames) {
    if (name == type) flags.schedule = known;
  }
  flags.lr = lr;
  flags.schedule_kwargs = kwargs;
  return flags;
}

inline LrSchedule schedule_for(const configs::FlagValues& flags, int64_t total_steps) {
  const configs::Config config =
      configs::resolve(configs::Document(), flags, {.hidden_size = 64, .total_steps = total_steps})
          .config;
  return {config.scheduler, config.optimizer};
}

}  // namespace zeroth::optim
