// Looks on while a step runs: how long its phases take, on a profiled step also each block, what
// memory they leave, what crossed the ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/engine.h"
#include "engine/phase_timer.h"
#include "model/block.h"

namespace zeroth::engine {

enum class StepPhase { kData, kForward, kBackward, kReduce, kUpdate };

class StepProfiler {
 public:
  StepProfiler(const configs::Config& config, const comm::DeviceMesh& mesh);

  // `steps_done`: before this one.
  void begin(int64_t steps_done);
  // The time since the last phase (or begin) belongs to this one.
  void end_phase(StepPhase phase);
  // Fills times, memory, comm and blocks. To be called when the step's work is queued and the
  // gradients have been waited for.
  void report(const model::Blocks& blocks, StepStats& stats);

  // Where the runner marks its blocks in this step: forward at its index, backward behind all of
  // them. Null unless the step is profiled.
  PhaseTimer* block_timer() { return profiled_ ? &blocks_ : nullptr; }

 private:
  // Adds up the laps that have ended: a step of many micro-batches leaves no list of them.
  void add_phase_times();

  const configs::Config& config_;
  const comm::DeviceMesh& mesh_;
  PhaseTimer phases_;
  PhaseTimer blocks_;
  StepTimes times_;
  std::map<size_t, double> block_seconds_;  // by part
  bool profiled_ = false;
  bool pending_ = false;                                // the step that has begun
  std::map<std::string, comm::CommTimes> comm_before_;  // by group
  std::vector<MemoryPoint> memory_;
};

}  // namespace zeroth::engine
