// One rank's run, from its plan to the end.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "engine/engine.h"
#include "trainer/run_clock.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Owns what connects the ranks, so that an error can leave execute() without destroying it:
// destructors of process groups may wait for peers that wait for this rank.
class Run {
 public:
  // Connects the ranks, builds the model, trains, evaluates and saves as planned. Collective. Rank
  // 0 writes to stdout. Throws Errors that this rank alone may have met.
  void execute(const RunPlan& plan, const comm::RankEnv& env, const RunClock& clock);

 private:
  std::shared_ptr<comm::Mesh> mesh_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace zeroth::trainer
