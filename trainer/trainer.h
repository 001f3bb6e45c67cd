// The run itself: step after step, evaluation when it is due, the model at the end.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "trainer/batch_loader.h"
#include "trainer/metrics.h"
#include "trainer/progress.h"
#include "trainer/run_clock.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Collective: every rank runs the same plan. Nothing is owned. `progress` and `metrics` of ranks
// other than 0 write nowhere.
class Trainer {
 public:
  struct Reports {
    Progress& progress;
    MetricsFile& metrics;
    const RunClock& clock;
  };

  Trainer(const RunPlan& plan, engine::Engine& engine, Reports reports);

  void run();

 private:
  void train();
  void report(const engine::StepStats& stats);
  bool evaluation_due(int64_t step) const;
  void evaluate(int64_t step);
  void save();

  const RunPlan& plan_;
  engine::Engine& engine_;
  Reports reports_;
  double last_end_s_ = 0;  // end of the previous step, or start of training
};

}  // namespace zeroth::trainer
