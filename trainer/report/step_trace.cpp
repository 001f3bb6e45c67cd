#include "trainer/report/step_trace.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "base/json/json.h"

namespace zeroth::trainer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPageEvents = 20'000, kMaxPageRanks = 64;
// In the order of TimelineEvent::Kind.
constexpr std::array kKindNames = {
    "data", "forward", "backward", "backward input", "backward weight", "reduce", "update"};

int64_t microseconds(double seconds) {
  return std::llround(seconds * 1e6);
}

std::string rank_name(size_t rank, size_t num_ranks, int64_t stages) {
  if (stages == 1) return fmt::format("rank {}", rank);
  return fmt::format("rank {}, stage {}", rank, rank * static_cast<size_t>(stages) / num_ranks);
}

size_t count_events(const std::vector<engine::Timeline>& timelines) {
  size_t count = 0;
  for (const engine::Timeline& timeline : timelines) count += timeline.size();
  return count;
}

Json complete_event(const std::string& name, std::string_view category, size_t rank, double begin,
                    double end) {
  const int64_t from = microseconds(begin);
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", from},
          {"pid", rank},
          {"tid", 0},
          {"dur", microseconds(end) - from}};
}

}  // namespace

bool StepTrace::is_due(int64_t step) {
  if (requested_) return requested_->contains(step);
  if (first_step_ == 0) first_step_ = step;
  return traces_for_page_ && step == first_step_ + 1;
}

bool StepTrace::add(const engine::StepStats& stats, double begin_s,
                    const std::function<void(const std::string&)>& warn) {
  if (is_full_ || !requested_ || !requested_->contains(stats.step)) return false;
  num_events_ += count_events(stats.timelines);
  is_full_ = num_events_ > kMaxTracedEvents;
  if (is_full_) {
    warn(fmt::format("trace.json ends before step {}: more than {} events do not fit", stats.step,
                     kMaxTracedEvents));
    return false;
  }
  const auto append = [this](const Json& event) { events_ += to_line(event) + ","; };
  const size_t num_ranks = stats.timelines.size();
  if (!begin_s_) {
    begin_s_ = begin_s;
    for (size_t rank = 0; rank < num_ranks; ++rank)
      append({{"name", "process_name"},
              {"ph", "M"},
              {"pid", rank},
              {"args", {{"name", rank_name(rank, num_ranks, stages_)}}}});
  }
  const double start = begin_s - *begin_s_;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    for (const engine::TimelineEvent& event : stats.timelines[rank]) {
      const std::string kind = kKindNames.at(static_cast<size_t>(event.kind));
      Json args = {{"step", stats.step}};
      if (event.micro_batch >= 0) args["micro_batch"] = event.micro_batch;
      if (event.chunk >= 0) args["chunk"] = event.chunk;
      Json complete = complete_event(
          event.micro_batch < 0 ? kind : fmt::format("{} {}", kind, event.micro_batch), kind, rank,
          start + event.begin, start + event.end);
      complete["args"] = std::move(args);
      append(complete);
      if (microseconds(event.waited) > 0)
        append(complete_event("wait", "wait", rank, start + event.begin,
                              start + event.begin + event.waited));
    }
  }
  return true;
}

std::string StepTrace::chrome_trace() const {
  return fmt::format(R"({{"displayTimeUnit":"ms","traceEvents":[{}]}})",
                     std::string_view(events_).substr(0, events_.empty() ? 0 : events_.size() - 1));
}

nlohmann::json page_timeline(const engine::StepStats& stats, int64_t stages) {
  const size_t num_ranks = stats.timelines.size();
  const bool is_large = count_events(stats.timelines) > kMaxPageEvents || num_ranks > kMaxPageRanks;
  const size_t every = is_large ? num_ranks / static_cast<size_t>(stages) : 1;
  Json ranks = Json::array();
  size_t num_shown = 0;
  for (size_t rank = 0; rank < num_ranks; rank += every) {
    num_shown += stats.timelines[rank].size();
    if (num_shown > kMaxPageEvents) return nullptr;
    Json events = Json::array();
    for (const engine::TimelineEvent& event : stats.timelines[rank])
      events.push_back({static_cast<int>(event.kind), event.micro_batch, event.chunk,
                        microseconds(event.begin), microseconds(event.end),
                        microseconds(event.waited)});
    ranks.push_back({{"name", rank_name(rank, num_ranks, stages)}, {"events", std::move(events)}});
  }
  const size_t omitted = num_ranks - ranks.size();
  return {{"step", stats.step}, {"ranks", std::move(ranks)}, {"omitted", omitted}};
}

}  // namespace zeroth::trainer
