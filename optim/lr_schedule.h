// The learning rate as a function of the number of applied updates. Pure: no torch, no state.
#pragma once

#include <cstdint>

#include "configs/config.h"

namespace zeroth::optim {

class LrSchedule {
 public:
  // `optimizer_lr` is the rate of kConstant and the base of kWarmupCosineLr's ratios; the other
  // kinds take their rates from the config. As in DeepSpeed a warm-up lasts at least two steps.
  LrSchedule(const configs::SchedulerConfig& config, double optimizer_lr);

  // The rate that update `applied_updates` (0: the first) uses. A skipped step applies no update,
  // so the next step asks for the same number again. DeepSpeed moves its schedule after an update:
  // update s sees schedule step s - 1, and update 0 the rate from before any schedule step, which
  // is the minimum rate for kWarmupLr and kWarmupDecayLr and zero for kWarmupCosineLr.
  double at(int64_t applied_updates) const;

 private:
  double warmup_share(int64_t schedule_step) const;
  double decay_share(int64_t schedule_step) const;
  double cosine_ratio(int64_t schedule_step) const;
  double min_to_max(double share) const;

  configs::SchedulerConfig config_;
  double optimizer_lr_;
  int64_t warmup_steps_;
};

}  // namespace zeroth::optim
