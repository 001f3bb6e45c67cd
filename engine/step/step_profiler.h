// Profiler of a step: the time of its phases and, in a profiled step, of each block; the memory in
// use after each phase; and the communication.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/engine.h"
#include "engine/step/phase_timer.h"
#include "model/block.h"

namespace zeroth::engine {

enum class StepPhase { kData, kForward, kBackward, kReduce, kUpdate };

class StepProfiler {
 public:
  StepProfiler(const configs::Config& config, const comm::DeviceMesh& mesh);

  // `steps_done` excludes this step.
  void begin(int64_t steps_done);
  // Ends a phase: the time since the previous phase (or begin) belongs to it.
  void end_phase(StepPhase phase);
  // Fills times, memory, comm and blocks of `stats`. Call it when the step's work is queued and the
  // reductions of gradients have finished.
  void report(const model::Blocks& blocks, StepStats& stats);

  // Returns the timer of the step's blocks: a block's index is its forward, number of blocks +
  // index its backward. Null unless the step is profiled.
  PhaseTimer* block_timer() { return profiled_ ? &blocks_ : nullptr; }

 private:
  // Adds up the phases that have ended, so that a step of many micro-batches keeps no list of them.
  void add_phase_times();

  const configs::Config& config_;
  const comm::DeviceMesh& mesh_;
  PhaseTimer phases_;
  PhaseTimer blocks_;
  StepTimes times_;
  std::map<size_t, double> block_seconds_;  // by part
  bool profiled_ = false;
  bool pending_ = false;                                // a step has begun
  std::map<std::string, comm::CommTimes> comm_before_;  // by group
  std::vector<MemoryPoint> memory_;
};

}  // namespace zeroth::engine
