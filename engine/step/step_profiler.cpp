#include "engine/step/step_profiler.h"

#include <algorithm>
#include <utility>

#include "model/blocks/linear.h"

namespace zeroth::engine {
namespace {

// Fields of StepTimes, by StepPhase.
constexpr double StepTimes::*kTimes[] = {&StepTimes::data, &StepTimes::forward,
                                         &StepTimes::backward, &StepTimes::reduce,
                                         &StepTimes::update};
constexpr const char* kNames[] = {"before forward", "after forward", "after backward",
                                  "before the update", "after the update"};

comm::CommTimes difference(const comm::CommTimes& now, const comm::CommTimes& before) {
  return {.working_s = now.working_s - before.working_s,
          .waiting_s = now.waiting_s - before.waiting_s,
          .in_flight_s = now.in_flight_s - before.in_flight_s,
          .bytes = now.bytes - before.bytes,
          .collectives = now.collectives - before.collectives};
}

}  // namespace

void PhaseTimer::mark(size_t part, double excluded_seconds) {
  timestamps_.push_back({part, Clock::now(), excluded_seconds, nullptr});
  if (device_.is_cuda()) timestamps_.back().event = events_.record(device::current_stream(device_));
}

double PhaseTimer::between(const Timestamp& from, const Timestamp& to) const {
  if (device_.is_cpu()) {
    return std::chrono::duration<double>(to.host - from.host).count() - to.excluded_seconds;
  }
  return device::seconds_between(from.event, to.event);
}

std::vector<PhaseTimer::PhaseTime> PhaseTimer::take_finished() {
  std::vector<PhaseTime> times;
  while (timestamps_.size() >= 2 && reached(timestamps_[1])) {
    if (timestamps_[1].part != kUnattributed)
      times.push_back({timestamps_[1].part, between(timestamps_[0], timestamps_[1])});
    timestamps_.pop_front();
  }
  return times;
}

void StepProfiler::begin(int64_t steps_done) {
  // Discard the phases of a step that threw.
  if (std::exchange(pending_, true)) {
    phases_ = PhaseTimer(mesh_.device());
    blocks_ = PhaseTimer(mesh_.device());
    times_ = {};
    block_seconds_.clear();
  }
  profiled_ = config_.flops_profiler.profiled_step() == steps_done;
  comm_before_ = mesh_.times_by_group();
  memory_.clear();
  phases_.begin();
}

void StepProfiler::end_phase(StepPhase phase) {
  phases_.end_phase(static_cast<size_t>(phase));
  add_phase_times();
  if (!config_.memory_breakdown) return;
  // Keep only the last micro-batch's memory.
  const char* name = kNames[static_cast<size_t>(phase)];
  std::erase_if(memory_, [&](const MemoryPoint& point) { return point.name == name; });
  memory_.push_back({name, device::memory_use(mesh_.device())});
}

void StepProfiler::report(const model::Blocks& blocks, StepStats& stats) {
  pending_ = false;
  add_phase_times();
  stats.times = std::exchange(times_, {});
  for (const auto& [group, now] : mesh_.times_by_group()) {
    const comm::CommTimes times = difference(now, comm_before_[group]);
    if (times.collectives > 0) stats.comm_by_group[group] = times;
    stats.comm += times;
  }
  stats.memory = std::move(memory_);
  if (!profiled_) return;
  for (const auto& block : blocks) {
    stats.blocks.push_back(
        {.label = block->label(), .parameters = model::count_parameters(*block)});
  }
  torch::Tensor seconds = torch::zeros({2 * static_cast<int64_t>(blocks.size())}, torch::kDouble);
  for (const auto& [part, of_part] : std::exchange(block_seconds_, {}))
    seconds[static_cast<int64_t>(part)] = of_part;
  // The ranks of a pipeline have other blocks each.
  seconds = seconds.to(mesh_.device());
  mesh_.group({comm::MeshDim::kPp}).all_reduce(seconds, comm::ReduceOp::kSum, "times").wait();
  const torch::Tensor all = seconds.to(torch::kCPU);
  for (size_t i = 0; i < blocks.size(); ++i) {
    stats.blocks[i].forward = all[static_cast<int64_t>(i)].item<double>();
    stats.blocks[i].backward = all[static_cast<int64_t>(i + blocks.size())].item<double>();
  }
}

void StepProfiler::add_phase_times() {
  for (const PhaseTimer::PhaseTime& time : phases_.take_finished())
    times_.*kTimes[time.part] += time.seconds;
  for (const PhaseTimer::PhaseTime& time : blocks_.take_finished())
    block_seconds_[time.part] += time.seconds;
}

}  // namespace zeroth::engine
