// Timelines of steps: what every rank did, on one time axis, for the page and as a Chrome trace.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/step/step_stats.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {

// StepTrace decides which steps are traced, and keeps those of --trace-steps.
class StepTrace {
 public:
  // `asked`: --trace-steps. `has_output`: --output is given.
  StepTrace(std::optional<StepRange> asked, int64_t stages, bool has_output)
      : asked_(asked), stages_(stages), traces_for_page_(stages > 1 && has_output) {}

  // Returns whether the step is to be traced (Engine::trace_next_step), the same on all ranks: one
  // of --trace-steps, and the second step of an attempt with a pipeline and --output, for the page.
  bool is_due(int64_t step) const;
  // Adds a traced step that began `begin_s` seconds after the run's start. Returns whether it is
  // one of --trace-steps, so that chrome_trace() has changed.
  bool add(const engine::StepStats& stats, double begin_s);
  // Returns the steps of --trace-steps so far in the Trace Event Format of chrome://tracing and
  // Perfetto: a process per rank, whose events are named "forward 3" after the micro-batch.
  std::string chrome_trace() const;

 private:
  struct TracedStep {
    int64_t step = 0;
    double begin_s = 0;
    std::vector<engine::Timeline> timelines;
  };

  std::optional<StepRange> asked_;
  int64_t stages_;
  bool traces_for_page_;
  int64_t first_step_ = 0;  // of this attempt; 0: none yet
  std::vector<TracedStep> steps_;
};

// Returns a traced step for RunPage::timeline(). Of many ranks it has one for each of the `stages`.
nlohmann::json page_timeline(const engine::StepStats& stats, int64_t stages);

}  // namespace zeroth::trainer
