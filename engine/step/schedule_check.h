// Simulation of a pipeline's schedule: whether it ends, how long it takes, what it keeps. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "configs/config.h"
#include "engine/step/partition.h"
#include "engine/step/pipeline_schedule.h"

namespace zeroth::engine {

// PassTime returns the time of a pass through a virtual stage.
using PassTime = std::function<double(PipeOpKind kind, int64_t virtual_stage)>;

struct ScheduleCheck {
  bool ends = false;           // false: ranks wait for each other forever
  double makespan = 0;         // from the first pass to the end of the last
  std::vector<double> busy;    // [rank]: sum of the times of its passes
  std::vector<int64_t> peaks;  // [rank]: largest number of chunks' inputs that it keeps at a time

  // Returns the share of the ranks' time in which they wait for each other, 0 to 1.
  double bubble() const {
    const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
    return makespan > 0 ? 1 - sum / (makespan * static_cast<double>(busy.size())) : 0;
  }
};

// Runs the lists of all ranks beside each other. Sending takes no time. Each channel (PipeLink)
// holds `capacity` values.
ScheduleCheck check_schedule(configs::PipelineConfig::Schedule schedule, const PipelineShape& shape,
                             const PassTime& time,
                             int64_t capacity = std::numeric_limits<int64_t>::max());

// Returns the line of the start-up summary: the stages' blocks, trained parameters and shares of
// the time, and the bubble that these times give. Each backward takes twice as long as its forward.
// Empty if there is one stage. `times` are those of partition_blocks().
std::string describe_pipeline(const model::Blocks& blocks, const configs::Config& config,
                              const std::vector<double>& times);

}  // namespace zeroth::engine
