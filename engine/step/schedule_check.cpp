#include "engine/step/schedule_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/text/units.h"

namespace zeroth::engine {
namespace {

using Schedule = configs::PipelineConfig::Schedule;

// Simulation runs the lists of all ranks beside each other. A pass takes its time; sending takes
// none. A link has a channel for activations and one for gradients, each of which holds `capacity`
// values: a rank that finds no room waits until the receiver has taken another. A rank takes values
// in the order of their sending, when it needs one or waits for room.
class Simulation {
 public:
  Simulation(Schedule schedule, const PipelineShape& shape, const PassTime& time, int64_t capacity)
      : schedule_(schedule), shape_(shape), time_(time), capacity_(capacity) {
    for (int64_t rank = 0; rank < shape.ranks; ++rank) {
      ranks_.push_back({.ops = pipeline_ops(schedule, shape, rank)});
      for (size_t chunk = 0; chunk < static_cast<size_t>(shape.chunks); ++chunk)
        places_[virtual_stage_of(schedule, shape, rank, chunk)] = {rank, chunk};
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t rank = 0; rank < shape.ranks; ++rank) {
        while (advance(rank)) moved = true;
      }
    }
  }

  ScheduleCheck result() const {
    ScheduleCheck check{.ends = true, .makespan = 0, .busy = {}, .peaks = {}};
    for (const Rank& rank : ranks_) {
      check.ends = check.ends && rank.next == rank.ops.size() && !rank.sending;
      check.makespan = std::max(check.makespan, rank.now);
      check.busy.push_back(rank.busy);
      check.peaks.push_back(rank.peak);
    }
    return check;
  }

 private:
  // A value for a pass through a stage: an activation for its forward, or a gradient.
  struct Value {
    bool activation = true;
    int64_t micro_batch = 0;
    int64_t stage = 0;
    auto operator<=>(const Value&) const = default;
  };
  struct Rank {
    std::vector<PipeOp> ops;
    size_t next = 0;
    double now = 0, busy = 0;
    std::optional<Value> sending = {};
    std::map<Value, double> received = {};  // when it came
    int64_t inputs = 0, peak = 0;
  };
  struct Channel {
    std::deque<std::pair<Value, double>> values;  // with the time at which each was sent
    double taken_at = 0;                          // the last one
  };

  bool advance(int64_t number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    if (rank.sending) return try_send(number) || take_all(number);
    if (rank.next == rank.ops.size()) return false;
    const PipeOp& op = rank.ops[rank.next];
    const int64_t stage = virtual_stage_of(schedule_, shape_, number, op.chunk);
    const bool forward = op.kind == PipeOpKind::kForward;
    const bool first = forward ? stage == 0 : stage == shape_.virtual_stages() - 1;
    if (op.kind != PipeOpKind::kBackwardWeight && !first) {
      const auto came = take(number, {forward, op.micro_batch, stage});
      if (!came) return false;
      rank.now = std::max(rank.now, *came);
    }
    const double time = time_(op.kind, stage);
    rank.now += time;
    rank.busy += time;
    rank.inputs += forward ? 1 : op.kind == PipeOpKind::kBackwardInput ? 0 : -1;
    rank.peak = std::max(rank.peak, rank.inputs);
    ++rank.next;
    const int64_t target = stage + (forward ? 1 : -1);
    if (op.kind == PipeOpKind::kBackwardWeight || target < 0 || target == shape_.virtual_stages())
      return true;
    rank.sending = {forward, op.micro_batch, target};
    return true;
  }

  bool try_send(int64_t number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    const int64_t receiver = places_.at(rank.sending->stage).first;
    if (receiver == number) {
      rank.received[*rank.sending] = rank.now;
    } else {
      Channel& channel = channels_[{number, receiver, rank.sending->activation}];
      if (static_cast<int64_t>(channel.values.size()) == capacity_) return false;
      // There has been room since the last value was taken.
      if (static_cast<int64_t>(channel.values.size()) + 1 == capacity_)
        rank.now = std::max(rank.now, channel.taken_at);
      channel.values.emplace_back(*rank.sending, rank.now);
    }
    rank.sending.reset();
    return true;
  }

  // Takes the channel's next value.
  void take_next(Rank& rank, Channel& channel) {
    const auto [value, at] = channel.values.front();
    channel.values.pop_front();
    channel.taken_at = std::max(rank.now, at);
    rank.received[value] = at;
  }

  // Takes all values that have been sent to the rank. Returns whether there were any.
  bool take_all(int64_t number) {
    bool any = false;
    for (auto& [ends, channel] : channels_) {
      for (; std::get<1>(ends) == number && !channel.values.empty(); any = true)
        take_next(ranks_[static_cast<size_t>(number)], channel);
    }
    return any;
  }

  // Takes the value, and those sent before it on its channel.
  std::optional<double> take(int64_t number, const Value& value) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    const int64_t before = value.stage + (value.activation ? -1 : 1);
    const int64_t sender = places_.at(before).first;
    Channel& channel = channels_[{sender, number, value.activation}];
    while (!rank.received.contains(value)) {
      if (sender == number || channel.values.empty()) return std::nullopt;
      take_next(rank, channel);
    }
    const double came = rank.received.at(value);
    rank.received.erase(value);
    return came;
  }

  Schedule schedule_;
  PipelineShape shape_;
  const PassTime& time_;
  int64_t capacity_;
  std::vector<Rank> ranks_;
  std::map<int64_t, std::pair<int64_t, size_t>> places_;            // [stage]: rank and chunk
  std::map<std::tuple<int64_t, int64_t, bool>, Channel> channels_;  // [from, to, activations]
};

double sum_of(const std::vector<double>& weights, size_t begin, size_t end) {
  return std::accumulate(weights.begin() + static_cast<ptrdiff_t>(begin),
                         weights.begin() + static_cast<ptrdiff_t>(end), 0.0);
}

}  // namespace

ScheduleCheck check_schedule(Schedule schedule, const PipelineShape& shape, const PassTime& time,
                             int64_t capacity) {
  return Simulation(schedule, shape, time, capacity).result();
}

std::string describe_pipeline(const model::Blocks& blocks, const configs::Config& config,
                              const std::vector<double>& times) {
  const PipelinePartition partition = partition_blocks(blocks, config.pipeline, times);
  if (partition.ranks == 1) return "";
  const std::vector<double> weights = block_weights(blocks, "time", times);
  const std::vector<double> elements = block_weights(blocks, "parameters", {});
  const double all = sum_of(weights, 0, weights.size());
  const PipelineShape shape = partition.shape(config.batch.accumulation_steps);
  std::vector<std::string> stages;
  for (int64_t rank = 0; rank < shape.ranks; ++rank) {
    std::vector<std::string> ranges;
    double own_time = 0, own_elements = 0;
    for (size_t chunk = 0; chunk < static_cast<size_t>(shape.chunks); ++chunk) {
      const int64_t stage = virtual_stage_of(partition.schedule, shape, rank, chunk);
      const size_t begin = partition.begin(stage), end = partition.ends[static_cast<size_t>(stage)];
      ranges.push_back(begin + 1 == end ? blocks[begin]->label()
                                        : fmt::format("{} to {}", blocks[begin]->label(),
                                                      blocks[end - 1]->label()));
      own_time += sum_of(weights, begin, end);
      own_elements += sum_of(elements, begin, end);
    }
    stages.push_back(fmt::format(
        "{} ({} trained parameters, {:.0f} % of the time)", fmt::join(ranges, ", "),
        format_count(static_cast<int64_t>(own_elements)), all > 0 ? 100 * own_time / all : 0));
  }
  const auto time = [&](PipeOpKind kind, int64_t stage) {
    const double forward =
        sum_of(weights, partition.begin(stage), partition.ends[static_cast<size_t>(stage)]);
    return kind == PipeOpKind::kBackward ? 2 * forward : forward;
  };
  return fmt::format("{} stages: {}; predicted bubble {:.0f} %", partition.ranks,
                     fmt::join(stages, "; "),
                     100 * check_schedule(partition.schedule, shape, time).bubble());
}

}  // namespace zeroth::engine
