#include "configs/defaults.h"

#include "configs/resolve.h"

namespace zeroth::configs {
namespace {

constexpr Defaults kZerothDefaults;
constexpr Defaults kTrainerDefaults = {.epochs = 3,
                                       .whole_epochs = true,
                                       .eval_micro_batch = 8,
                                       .schedule = HfSchedule::Type::kLinear,
                                       .no_decay = true};

}  // namespace

const Defaults& defaults_for(const FlagValues& flags) {
  return flags.for_trainer ? kTrainerDefaults : kZerothDefaults;
}

}  // namespace zeroth::configs
