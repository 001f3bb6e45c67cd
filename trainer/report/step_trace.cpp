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

bool StepTrace::is_due(int64_t step) const {
  return (asked_ && asked_->contains(step)) ||
         (traces_for_page_ && first_step_ > 0 && step == first_step_ + 1);
}

bool StepTrace::add(const engine::StepStats& stats, double begin_s) {
  if (first_step_ == 0) first_step_ = stats.step;
  if (stats.timelines.empty() || !asked_ || !asked_->contains(stats.step)) return false;
  steps_.push_back({stats.step, begin_s, stats.timelines});
  return true;
}

std::string StepTrace::chrome_trace() const {
  Json events = Json::array();
  if (steps_.empty()) return to_line(Json{{"traceEvents", events}});
  const size_t num_ranks = steps_.front().timelines.size();
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const std::string name = rank_name(rank, num_ranks, stages_);
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", name}}}});
  }
  for (const TracedStep& traced : steps_) {
    const double start = traced.begin_s - steps_.front().begin_s;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      for (const engine::TimelineEvent& event : traced.timelines[rank]) {
        const std::string kind = kKindNames.at(static_cast<size_t>(event.kind));
        Json args = {{"step", traced.step}};
        if (event.micro_batch >= 0) args["micro_batch"] = event.micro_batch;
        if (event.chunk >= 0) args["chunk"] = event.chunk;
        Json complete = complete_event(
            event.micro_batch < 0 ? kind : fmt::format("{} {}", kind, event.micro_batch), kind,
            rank, start + event.begin, start + event.end);
        complete["args"] = std::move(args);
        events.push_back(std::move(complete));
        if (microseconds(event.waited) > 0)
          events.push_back(complete_event("wait", "wait", rank, start + event.begin,
                                          start + event.begin + event.waited));
      }
    }
  }
  return to_line(Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}});
}

nlohmann::json page_timeline(const engine::StepStats& stats, int64_t stages) {
  const size_t num_ranks = stats.timelines.size();
  size_t num_events = 0;
  for (const engine::Timeline& timeline : stats.timelines) num_events += timeline.size();
  const bool is_large = num_events > kMaxPageEvents || num_ranks > kMaxPageRanks;
  const size_t every = is_large ? num_ranks / static_cast<size_t>(stages) : 1;
  Json ranks = Json::array();
  for (size_t rank = 0; rank < num_ranks; rank += every) {
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
