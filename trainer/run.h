// One rank's run, from its plan to the end.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "engine/engine.h"
#include "engine/memory_check.h"
#include "trainer/report/run_clock.h"
#include "trainer/run_plan.h"
#include "trainer/stop_signal.h"

namespace zeroth::trainer {

class Reporter;

// Owns what connects the ranks, so that an error can leave execute() without destroying it:
// destructors of process groups may wait for peers that wait for this rank.
class Run {
 public:
  // `on_stuck`: see comm::make_mesh.
  explicit Run(comm::OnStuck on_stuck) : on_stuck_(std::move(on_stuck)) {}

  // Connects the ranks, builds the model, trains, evaluates and saves as planned. Collective. Rank
  // 0 writes to stdout. Returns 0, or the signal that ended training early (Trainer::run). Throws
  // Errors that this rank alone may have met; where memory was lacking, with what needs less.
  int execute(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
              const RunClock& clock, StopSignal& stop);

 private:
  int go(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
         const RunClock& clock, StopSignal& stop);
  bool load(const RunPlan& plan, const StopSignal& stop, Reporter& reporter);

  comm::OnStuck on_stuck_;
  std::shared_ptr<comm::Mesh> mesh_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace zeroth::trainer
