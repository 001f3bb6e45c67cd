// Looks on while a step runs: how long its phases take, on a profiled step also each block, what
// memory they leave, what crossed the ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "engine/engine.h"
#include "engine/lap_clock.h"
#include "model/block.h"

namespace zeroth::engine {

enum class Phase { kData, kForward, kBackward, kReduce, kUpdate };

class StepWatch {
 public:
  StepWatch(const configs::Config& config, const comm::Mesh& mesh);

  // `steps_done`: before this one.
  void begin(int64_t steps_done);
  // The time since the last phase (or begin) belongs to this one.
  void ended(Phase phase);
  // Fills times, memory, comm and blocks. To be called when the step's work is queued and the
  // gradients have been waited for.
  void tell(const model::Blocks& blocks, StepStats& stats);

  // Where the runner marks its blocks in this step: forward at its index, backward behind all of
  // them. Null unless the step is profiled.
  LapClock* block_clock() { return profiled_ ? &blocks_ : nullptr; }

 private:
  // Adds up the laps that have ended: a step of many micro-batches leaves no list of them.
  void add_laps();

  const configs::Config& config_;
  const comm::Mesh& mesh_;
  LapClock phases_;
  LapClock blocks_;
  StepTimes times_;
  std::map<size_t, double> block_seconds_;  // by part
  bool profiled_ = false;
  bool untold_ = false;                                 // the step that has begun
  std::map<std::string, comm::CommTimes> comm_before_;  // by group
  std::vector<MemoryPoint> memory_;
};

}  // namespace zeroth::engine
