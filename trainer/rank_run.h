// One rank's run, from its plan to the end.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"
#include "engine/engine.h"
#include "engine/memory/memory_check.h"

namespace zeroth::trainer {

class Reporter;
class RunTimer;
class StopSignal;
struct RunPlan;

// RankRun owns what connects the ranks, so that an error can leave execute() without destroying it:
// destructors of process groups may wait for peers that wait for this rank.
class RankRun {
 public:
  // `on_hang`: see comm::make_mesh.
  explicit RankRun(comm::HangHandler on_hang) : on_hang_(std::move(on_hang)) {}

  // Connects the ranks, builds the model, trains, evaluates and saves as planned. Collective. Rank
  // 0 writes to stdout. Returns 0, or the signal that ended training early (Trainer::run). Throws
  // Errors that may occur on this rank only; an Error about a lack of memory lists what needs less.
  int execute(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
              const RunTimer& clock, StopSignal& stop);

 private:
  int run_steps(const RunPlan& plan, const engine::RunMemory& memory, const comm::RankEnv& env,
                const RunTimer& clock, StopSignal& stop);
  bool load_model(const RunPlan& plan, std::vector<double> block_times, const StopSignal& stop,
                  Reporter& reporter);

  comm::HangHandler on_hang_;
  std::shared_ptr<comm::DeviceMesh> mesh_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace zeroth::trainer
