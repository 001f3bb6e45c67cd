#include "trainer/report/step_trace.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace zeroth::trainer::step_trace_test {
namespace {

using Kind = engine::TimelineEvent::Kind;

engine::StepStats traced(int64_t step, size_t ranks = 2, size_t events = 1) {
  engine::StepStats stats;
  stats.step = step;
  for (size_t rank = 0; rank < ranks; ++rank) {
    engine::Timeline timeline(events, {.kind = Kind::kForward,
                                       .micro_batch = 3,
                                       .chunk = static_cast<int64_t>(rank),
                                       .begin = 0.001,
                                       .end = 0.004,
                                       .waited = rank == 0 ? 0 : 0.002});
    timeline.push_back({.kind = Kind::kUpdate, .begin = 0.004, .end = 0.005});
    stats.timelines.push_back(timeline);
  }
  return stats;
}

bool add(StepTrace& trace, const engine::StepStats& stats, double begin_s) {
  return trace.add(stats, begin_s, [](const std::string& text) { FAIL(text); });
}

}  // namespace

TEST_CASE("the second step of an attempt with a pipeline is traced for the page") {
  for (const int64_t first : {1, 41}) {
    StepTrace trace({}, 2, true);
    CHECK_FALSE(trace.is_due(first));
    CHECK(trace.is_due(first + 1));
    CHECK_FALSE(add(trace, traced(first + 1), 1));  // not one of --trace-steps
    CHECK_FALSE(trace.is_due(first + 2));
  }
  for (StepTrace trace : {StepTrace({}, 1, true), StepTrace({}, 2, false)}) {
    for (const int64_t step : {1, 2, 3}) CHECK_FALSE(trace.is_due(step));
  }
}

TEST_CASE("--trace-steps are events of a Chrome trace, a process for each rank") {
  StepTrace trace(StepRange{4, 5}, 2, false);
  for (const int64_t step : {3, 4, 5, 6}) CHECK(trace.is_due(step) == (step == 4 || step == 5));
  CHECK(nlohmann::json::parse(trace.chrome_trace())["traceEvents"].empty());
  CHECK(add(trace, traced(4), 10));
  CHECK(add(trace, traced(5), 10.5));
  const auto events = nlohmann::json::parse(trace.chrome_trace())["traceEvents"];
  REQUIRE(events.size() == 2 + 2 * (2 + 3));
  CHECK(events[1] == nlohmann::json::parse(R"({"name": "process_name", "ph": "M", "pid": 1,
                                               "args": {"name": "rank 1, stage 1"}})"));
  CHECK(events[4] ==
        nlohmann::json::parse(
            R"({"name": "forward 3", "cat": "forward", "ph": "X", "ts": 1000, "dur": 3000, "pid": 1,
                "tid": 0, "args": {"step": 4, "micro_batch": 3, "chunk": 1}})"));
  CHECK(events[5] == nlohmann::json::parse(R"({"name": "wait", "cat": "wait", "ph": "X", "ts": 1000,
                                               "dur": 2000, "pid": 1, "tid": 0})"));
  CHECK(events[6]["name"] == "update");
  CHECK(events[7]["ts"] == 501'000);  // the next step began half a second later
}

TEST_CASE("a trace ends where it has no room for more, and says so once") {
  StepTrace trace(StepRange{1, 3}, 2, true);
  CHECK(add(trace, traced(1, 2, 10), 0));
  const std::string before = trace.chrome_trace();
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  CHECK_FALSE(trace.add(traced(2, 2, kMaxTracedEvents / 2), 1, warn));
  CHECK_FALSE(trace.add(traced(3, 2, 10), 2, warn));
  CHECK(warnings == std::vector<std::string>{
                        "trace.json ends before step 2: more than 200000 events do not fit"});
  CHECK(trace.chrome_trace() == before);
}

TEST_CASE("the page has every rank, or of many ranks one of each stage") {
  const auto few = page_timeline(traced(2), 2);
  CHECK(few["step"] == 2);
  CHECK(few["omitted"] == 0);
  CHECK(few["ranks"][1]["name"] == "rank 1, stage 1");
  CHECK(few["ranks"][1]["events"][0] == nlohmann::json{1, 3, 1, 1000, 4000, 2000});
  CHECK(page_timeline(traced(2, 3), 1)["ranks"][2]["name"] == "rank 2");
  for (const auto& large : {traced(2, 68), traced(2, 8, 4000)}) {
    const auto page = page_timeline(large, 4);
    REQUIRE(page["ranks"].size() == 4);
    CHECK(page["omitted"] == large.timelines.size() - 4);
    CHECK(page["ranks"][3]["name"] ==
          fmt::format("rank {}, stage 3", 3 * large.timelines.size() / 4));
  }
  CHECK(page_timeline(traced(2, 4, 10'000), 4).is_null());
}

}  // namespace zeroth::trainer::step_trace_test
