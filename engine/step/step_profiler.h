// Profiler of a step: the time of its phases and, in a profiled step, of each block; the memory in
// use after each phase; and the communication.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "device/events.h"
#include "engine/step/pipeline_schedule.h"
#include "engine/step/step_stats.h"
#include "model/block.h"

namespace zeroth::engine {

// PhaseTimer measures phases. On the CPU it uses the CPU's clock. A GPU runs after the CPU: there
// each call records an event on the stream, and phases are reported once the device has reached
// their events. No call waits for the device.
class PhaseTimer {
 public:
  struct PhaseTime {
    size_t part = 0;
    double seconds = 0;
  };

  explicit PhaseTimer(c10::Device device)
      : device_(device), events_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  // Starts a phase. The time since the last end_phase() belongs to none.
  void begin() { mark(kUnattributed); }
  // Ends a phase: the time since the last begin() or end_phase() belongs to `part`, less
  // `excluded_seconds` of CPU time, which are counted elsewhere; a GPU's clock does not see these.
  void end_phase(size_t part, double excluded_seconds = 0) { mark(part, excluded_seconds); }
  // Returns the phases that have ended since the last call, in order. Phases that the device is
  // still running stay for a later call; none of the earlier ones is left after a wait for the
  // device.
  std::vector<PhaseTime> take_finished();

 private:
  static constexpr size_t kUnattributed = ~size_t{0};
  using Clock = std::chrono::steady_clock;

  struct Timestamp {
    size_t part;
    Clock::time_point host;
    double excluded_seconds;
    device::Event event;  // on a GPU
  };

  void mark(size_t part, double excluded_seconds = 0);
  bool reached(const Timestamp& mark) const { return device_.is_cpu() || mark.event->query(); }
  double between(const Timestamp& from, const Timestamp& to) const;

  c10::Device device_;
  device::EventPool events_;
  std::deque<Timestamp> timestamps_;  // the first one starts the next phase
};

enum class StepPhase { kData, kForward, kBackward, kReduce, kUpdate };

class StepProfiler {
 public:
  StepProfiler(const configs::Config& config, const comm::DeviceMesh& mesh)
      : config_(config), mesh_(mesh), phases_(mesh.device()), blocks_(mesh.device()) {}

  // `steps_done` excludes this step. A traced step waits until all ranks, and their devices, have
  // come to its begin, so that its events have one time axis; all ranks trace the same steps.
  void begin(int64_t steps_done, bool traced = false);
  // Ends a phase: the time since the previous phase (or begin) belongs to it. `waited`: the part of
  // it that passed before another rank's activation or gradient came; no effect on a GPU, which
  // runs behind.
  void end_phase(StepPhase phase, double waited = 0) {
    end_phase(phase, TimelineEvent{.waited = waited});
  }
  void end_phase(const PipeOp& op, int64_t chunk, double waited);
  // Fills times, memory, comm, blocks and timelines of `stats`. Call it when the step's work is
  // queued and the reductions of gradients have finished.
  void report(const model::Blocks& blocks, StepStats& stats);

  // Returns the timer of the step's blocks: a block's index is its forward, number of blocks +
  // index its backward. Null unless the step is profiled.
  PhaseTimer* block_timer() { return profiled_ ? &blocks_ : nullptr; }

 private:
  // `event` has all but its kind, if the phase has one kind, and its times.
  void end_phase(StepPhase phase, TimelineEvent event);
  // Adds up the phases that have ended, so that a step of many micro-batches keeps no list of them.
  void add_phase_times();
  void wait_for_device();  // and adds up its phases
  std::vector<Timeline> gather_timelines() const;

  const configs::Config& config_;
  const comm::DeviceMesh& mesh_;
  PhaseTimer phases_;
  PhaseTimer blocks_;
  StepTimes times_;
  std::map<size_t, double> block_seconds_;  // by part
  bool profiled_ = false;
  bool traced_ = false;
  Timeline timeline_;                                   // of a traced step
  size_t num_placed_ = 0;                               // events whose times are known
  bool pending_ = false;                                // a step has begun
  std::map<std::string, comm::CommTimes> comm_before_;  // by group
  std::vector<MemoryPoint> memory_;
};

}  // namespace zeroth::engine
