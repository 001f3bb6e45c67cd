#include "launcher/cluster/turnout.h"

namespace zeroth::launcher {

NextStep next_step(const HostRange& range, const Turnout& turnout, const Patience& patience) {
  if (turnout.usable >= range.max) return NextStep::kStart;
  if (turnout.usable < range.min)
    return turnout.waited < patience.wait ? NextStep::kWait : NextStep::kGiveUp;
  const bool wait = turnout.awaited > 0 && turnout.since_enough < patience.last_call;
  return wait ? NextStep::kWait : NextStep::kStart;
}

}  // namespace zeroth::launcher
