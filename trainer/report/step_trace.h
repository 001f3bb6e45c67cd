// Timelines of steps: what every rank did, on one time axis, for the page and as a Chrome trace.
#pragma once

#include <cstdint>
#include <functional>
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
  // `requested`: --trace-steps. `has_output`: --output is set.
  StepTrace(std::optional<StepRange> requested, int64_t stages, bool has_output)
      : requested_(requested),
        stages_(stages),
        traces_for_page_(!requested && stages > 1 && has_output) {}

  // Returns whether the step is to be traced (Engine::trace_next_step), the same on all ranks: one
  // of --trace-steps; without them the second step of an attempt with a pipeline and --output, for
  // the page. Called before each step.
  bool is_due(int64_t step);
  // Adds a traced step that began `begin_s` seconds after the run's start, if it is one of
  // --trace-steps and there is room (kMaxTracedEvents). Returns whether it did, so that
  // chrome_trace() has changed. Warns once of steps that find no room.
  bool add(const engine::StepStats& stats, double begin_s,
           const std::function<void(const std::string&)>& warn);
  // Returns the steps of --trace-steps so far in the Trace Event Format of chrome://tracing and
  // Perfetto: a process per rank, whose events are named "forward 3" after the micro-batch.
  std::string chrome_trace() const;

 private:
  std::optional<StepRange> requested_;
  int64_t stages_;
  bool traces_for_page_;
  int64_t first_step_ = 0;         // of this attempt; 0: none yet
  std::optional<double> begin_s_;  // of the first step that was added
  size_t num_events_ = 0;
  bool is_full_ = false;
  std::string events_;  // JSON objects, each with a comma behind it
};

inline constexpr size_t kMaxTracedEvents = 200'000;  // about 25 MB

// Returns a traced step for RunPage::timeline(). Of many ranks it has one for each of the `stages`;
// null if even these have too many events.
nlohmann::json page_timeline(const engine::StepStats& stats, int64_t stages);

}  // namespace zeroth::trainer
