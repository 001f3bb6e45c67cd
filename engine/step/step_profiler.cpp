#include "engine/step/step_profiler.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/cpu_collectives.h"
#include "model/blocks/linear.h"

namespace zeroth::engine {
namespace {

// Fields of StepTimes, by StepPhase.
constexpr double StepTimes::*kTimes[] = {&StepTimes::data, &StepTimes::forward,
                                         &StepTimes::backward, &StepTimes::reduce,
                                         &StepTimes::update};
constexpr TimelineEvent::Kind kKinds[] = {
    TimelineEvent::Kind::kData, TimelineEvent::Kind::kForward, TimelineEvent::Kind::kBackward,
    TimelineEvent::Kind::kReduce, TimelineEvent::Kind::kUpdate};
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

void StepProfiler::begin(int64_t steps_done, bool traced) {
  // Discard the phases of a step that threw.
  if (std::exchange(pending_, true)) {
    phases_ = PhaseTimer(mesh_.device());
    blocks_ = PhaseTimer(mesh_.device());
    times_ = {};
    block_seconds_.clear();
  }
  traced_ = false;
  timeline_.clear();
  num_placed_ = 0;
  if (traced) {
    wait_for_device();
    comm::barrier(mesh_);
    traced_ = true;
  }
  profiled_ = config_.flops_profiler.profiled_step() == steps_done;
  comm_before_ = mesh_.times_by_group();
  memory_.clear();
  phases_.begin();
}

void StepProfiler::end_phase(const PipeOp& op, int64_t chunk, double waited) {
  TimelineEvent event{.micro_batch = op.micro_batch, .chunk = chunk, .waited = waited};
  if (op.kind == PipeOpKind::kForward) return end_phase(StepPhase::kForward, event);
  if (op.kind == PipeOpKind::kBackwardInput) event.kind = TimelineEvent::Kind::kBackwardInput;
  if (op.kind == PipeOpKind::kBackwardWeight) event.kind = TimelineEvent::Kind::kBackwardWeight;
  end_phase(StepPhase::kBackward, event);
}

void StepProfiler::end_phase(StepPhase phase, TimelineEvent event) {
  phases_.end_phase(static_cast<size_t>(phase));
  if (traced_) {
    if (event.kind == TimelineEvent::Kind::kData) event.kind = kKinds[static_cast<size_t>(phase)];
    timeline_.push_back(event);
  }
  add_phase_times();
  if (!config_.memory_breakdown) return;
  // Keep only the last micro-batch's memory.
  const char* name = kNames[static_cast<size_t>(phase)];
  std::erase_if(memory_, [&](const MemoryPoint& point) { return point.name == name; });
  memory_.push_back({name, device::memory_use(mesh_.device())});
}

void StepProfiler::report(const model::Blocks& blocks, StepStats& stats) {
  pending_ = false;
  if (traced_) wait_for_device();
  add_phase_times();
  stats.times = std::exchange(times_, {});
  for (const auto& [group, now] : mesh_.times_by_group()) {
    const comm::CommTimes times = difference(now, comm_before_[group]);
    if (times.collectives > 0) stats.comm_by_group[group] = times;
    stats.comm += times;
  }
  stats.memory = std::move(memory_);
  if (traced_) stats.timelines = gather_timelines();
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

void StepProfiler::wait_for_device() {
  const c10::Device device = mesh_.device();
  if (device.is_cuda())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  add_phase_times();
}

std::vector<Timeline> StepProfiler::gather_timelines() const {
  // All ranks run this program, so that the bytes of a number are the same on each.
  std::vector<double> own;
  for (const TimelineEvent& event : timeline_)
    own.insert(own.end(), {static_cast<double>(event.kind), static_cast<double>(event.micro_batch),
                           static_cast<double>(event.chunk), event.begin, event.end, event.waited});
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double));
  const std::vector<std::string> all =
      comm::all_gather_strings(bytes, "the ranks' timelines", mesh_.cpu_group());
  if (mesh_.rank() != 0) return {};
  std::vector<Timeline> timelines;
  for (const std::string& text : all) {
    std::vector<double> numbers(text.size() / sizeof(double));
    std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(double));
    Timeline& timeline = timelines.emplace_back();
    for (size_t i = 0; i + 6 <= numbers.size(); i += 6)
      timeline.push_back({.kind = static_cast<TimelineEvent::Kind>(numbers[i]),
                          .micro_batch = static_cast<int64_t>(numbers[i + 1]),
                          .chunk = static_cast<int64_t>(numbers[i + 2]),
                          .begin = numbers[i + 3],
                          .end = numbers[i + 4],
                          .waited = numbers[i + 5]});
  }
  return timelines;
}

void StepProfiler::add_phase_times() {
  for (const PhaseTimer::PhaseTime& time : phases_.take_finished()) {
    times_.*kTimes[time.part] += time.seconds;
    if (!traced_) continue;
    TimelineEvent& event = timeline_[num_placed_];
    event.begin = num_placed_ == 0 ? 0 : timeline_[num_placed_ - 1].end;
    event.end = event.begin + time.seconds;
    event.waited = mesh_.device().is_cpu() ? std::min(event.waited, time.seconds) : 0;
    ++num_placed_;
  }
  for (const PhaseTimer::PhaseTime& time : blocks_.take_finished())
    block_seconds_[time.part] += time.seconds;
}

}  // namespace zeroth::engine
