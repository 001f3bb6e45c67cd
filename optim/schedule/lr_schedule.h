// LrSchedule computes learning rate and betas from the number of applied updates, and, for one
// schedule, from evaluations. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "configs/config.h"
#include "optim/schedule/hf_schedule.h"

namespace zeroth::optim {

class LrSchedule {
 public:
  // The optimizer's lr is the rate of kConstant, the peak of kHuggingFace and the base of
  // kWarmupCosineLr's ratios; the other kinds read their rates from the config. As in DeepSpeed, a
  // warm-up of DeepSpeed's kinds lasts at least two steps.
  LrSchedule(const configs::SchedulerConfig& config, const configs::OptimizerConfig& optimizer);

  // Returns the rate that update `applied_updates` (0: the first) uses. A skipped step applies no
  // update, so the next step asks for the same number again. DeepSpeed moves its schedule after an
  // update: update s sees schedule step s - 1, and update 0 the rate from before any schedule step,
  // which is the minimum rate for kWarmupLr and kWarmupDecayLr and zero for kWarmupCosineLr.
  double at(int64_t applied_updates) const;
  // Returns the betas that this update uses: the optimizer's, or those of a OneCycle that cycles
  // momentum.
  std::array<double, 2> betas_at(int64_t applied_updates) const;
  // Records the loss of the next evaluation of the model in training: reduce_lr_on_plateau follows
  // it, the other schedules ignore it.
  void record_evaluation(double loss);

  // Returns the state that a checkpoint keeps; nullopt if the rate follows the updates alone.
  std::optional<Plateau::PlateauState> state() const;
  // Restores a state. A schedule that follows updates alone ignores it; one that follows
  // evaluations starts anew without a state.
  void restore(const std::optional<Plateau::PlateauState>& state);

 private:
  configs::SchedulerConfig config_;
  double optimizer_lr_;
  std::array<double, 2> optimizer_betas_;
  std::optional<Plateau> plateau_;
};

// DeepSpeed's OneCycle: rate and momentum rise and fall in opposite directions once, then decay.
// Returns the rate that update `update` (from 0) uses; see configs::OneCycleConfig.
double one_cycle_lr(const configs::OneCycleConfig& config, int64_t update);
// Returns the betas of an update. Requires config.cycle_momentum.
std::array<double, 2> one_cycle_betas(const configs::OneCycleConfig& config, int64_t update);

}  // namespace zeroth::optim
