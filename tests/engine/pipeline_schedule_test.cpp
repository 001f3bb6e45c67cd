#include "engine/step/pipeline_schedule.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/step/schedule_check.h"

namespace zeroth::engine::pipeline_schedule_test {
namespace {

using Schedule = configs::PipelineConfig::Schedule;
using enum PipeOpKind;

// "F0a B1b": forward of micro-batch 0 through chunk 0, backward of 1 through chunk 1. Without
// letters if there is one chunk.
std::string describe(const std::vector<PipeOp>& ops, int64_t chunks) {
  std::string text;
  for (const PipeOp& op : ops) {
    text += text.empty() ? "" : " ";
    text += "FBIW"[static_cast<size_t>(op.kind)] + std::to_string(op.micro_batch);
    if (chunks > 1) text += static_cast<char>('a' + op.chunk);
  }
  return text;
}

std::string describe(Schedule schedule, const PipelineShape& shape, int64_t rank) {
  return describe(pipeline_ops(schedule, shape, rank), shape.chunks);
}

// Simulates the schedule with passes that take 1, and 2 for both gradients.
ScheduleCheck simulate(Schedule schedule, const PipelineShape& shape,
                       int64_t capacity = std::numeric_limits<int64_t>::max()) {
  return check_schedule(
      schedule, shape, [](PipeOpKind kind, int64_t) { return kind == kBackward ? 2.0 : 1.0; },
      capacity);
}

struct Kind {
  Schedule schedule;
  std::vector<int64_t> chunks;  // with which it works, of those tried
};
const std::vector<Kind> kKinds = {
    {Schedule::k1F1B, {1}}, {Schedule::kGPipe, {1}}, {Schedule::kInterleaved1F1B, {1, 2, 3, 4}},
    {Schedule::kZbH1, {1}}, {Schedule::kZbV, {2}},   {Schedule::kBreadthFirst, {1, 2, 3, 4}}};

// Each pass is there once, in the order of the micro-batches, after what it continues on this rank.
void check_passes(Schedule schedule, const PipelineShape& shape, int64_t rank) {
  std::map<std::pair<PipeOpKind, size_t>, int64_t> done;
  for (const PipeOp& op : pipeline_ops(schedule, shape, rank)) {
    CHECK(done[std::pair(op.kind, op.chunk)]++ == op.micro_batch);
    const auto has = [&](PipeOpKind kind) {
      return done[std::pair(kind, op.chunk)] > op.micro_batch;
    };
    if (op.kind == kBackwardWeight) {
      CHECK(has(kBackwardInput));
    } else if (op.kind != kForward) {
      CHECK(has(kForward));
    }
  }
  for (size_t chunk = 0; chunk < static_cast<size_t>(shape.chunks); ++chunk) {
    const auto count = [&](PipeOpKind kind) { return done[std::pair(kind, chunk)]; };
    CHECK(count(kForward) == shape.micro_batches);
    CHECK(count(kBackward) + count(kBackwardInput) == shape.micro_batches);
    CHECK(count(kBackwardWeight) == count(kBackwardInput));
  }
}

}  // namespace

// The lists of PyTorch, Megatron-LM and DeepSpeed, which agree.
TEST_CASE("1F1B is that of the others") {
  const PipelineShape two{.ranks = 2, .micro_batches = 4}, four{.ranks = 4, .micro_batches = 8};
  CHECK(describe(Schedule::k1F1B, two, 0) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(describe(Schedule::k1F1B, two, 1) == "F0 B0 F1 B1 F2 B2 F3 B3");
  CHECK(describe(Schedule::k1F1B, four, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(describe(Schedule::k1F1B, four, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  CHECK(describe(Schedule::k1F1B, four, 2) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  CHECK(describe(Schedule::k1F1B, four, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  CHECK(describe(Schedule::k1F1B, {.ranks = 4, .micro_batches = 2}, 0) == "F0 F1 B0 B1");
  CHECK(describe(Schedule::k1F1B, {.micro_batches = 3}, 0) == "F0 B0 F1 B1 F2 B2");
}

TEST_CASE("GPipe runs all forward passes first") {
  CHECK(describe(Schedule::kGPipe, {.ranks = 2, .micro_batches = 3}, 1) == "F0 F1 F2 B0 B1 B2");
}

TEST_CASE("interleaved 1F1B is that of the others") {
  const PipelineShape two{.ranks = 2, .chunks = 2, .micro_batches = 4};
  const PipelineShape four{.ranks = 4, .chunks = 2, .micro_batches = 8};
  CHECK(describe(Schedule::kInterleaved1F1B, two, 0) ==
        "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a");
  CHECK(describe(Schedule::kInterleaved1F1B, two, 1) ==
        "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
  CHECK(describe(Schedule::kInterleaved1F1B, four, 0) ==
        "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b B1a "
        "B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a");
  CHECK(describe(Schedule::kInterleaved1F1B, four, 1) ==
        "F0a F1a F2a F3a F0b F1b F2b F3b F4a B0b F5a B1b F6a B2b F7a B3b F4b B0a F5b B1a F6b B2a "
        "F7b B3a B4b B5b B6b B7b B4a B5a B6a B7a");
  CHECK(describe(Schedule::kInterleaved1F1B, four, 2) ==
        "F0a F1a F2a F3a F0b F1b F2b B0b F3b B1b F4a B2b F5a B3b F6a B0a F7a B1a F4b B2a F5b B3a "
        "F6b B4b F7b B5b B6b B7b B4a B5a B6a B7a");
  CHECK(describe(Schedule::kInterleaved1F1B, four, 3) ==
        "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a B3a F4b B4b "
        "F5b B5b F6b B6b F7b B7b B4a B5a B6a B7a");
}

TEST_CASE("ZB-H1 is PyTorch's interleaved zero bubble with one chunk") {
  const PipelineShape two{.ranks = 2, .micro_batches = 4}, four{.ranks = 4, .micro_batches = 8};
  CHECK(describe(Schedule::kZbH1, two, 0) == "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3");
  CHECK(describe(Schedule::kZbH1, two, 1) == "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
  CHECK(describe(Schedule::kZbH1, four, 0) ==
        "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
  CHECK(describe(Schedule::kZbH1, four, 1) ==
        "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7");
  CHECK(describe(Schedule::kZbH1, four, 2) ==
        "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7");
  CHECK(describe(Schedule::kZbH1, four, 3) ==
        "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
}

TEST_CASE("ZBV is PyTorch's") {
  const PipelineShape two{.ranks = 2, .chunks = 2, .micro_batches = 4};
  CHECK(describe(Schedule::kZbV, two, 0) ==
        "F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a I0a W0a F2b I2b W2b I1a W1a F3b I3b W3b I2a W2a "
        "I3a W3a");
  CHECK(describe(Schedule::kZbV, two, 1) ==
        "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a "
        "W3b W3a");
  CHECK(virtual_stage_of(Schedule::kZbV, two, 0, 1) == 3);
  CHECK(virtual_stage_of(Schedule::kZbV, two, 1, 1) == 2);
  CHECK(virtual_stage_of(Schedule::kInterleaved1F1B, two, 1, 1) == 3);
}

TEST_CASE("breadth first, a chunk has all its passes of one direction in a row") {
  const PipelineShape shape{.ranks = 2, .chunks = 2, .micro_batches = 2};
  CHECK(describe(Schedule::kBreadthFirst, shape, 0) == "F0a F1a F0b F1b B0b B1b B0a B1a");
  CHECK(describe(Schedule::kBreadthFirst, shape, 1) == "F0a F1a F0b B0b F1b B1b B0a B1a");
}

// Forward, backward of inputs and of weights take 1 each.
TEST_CASE("makespans and peaks are the known ones") {
  struct Case {
    Schedule schedule;
    PipelineShape shape;
    double makespan;
    std::vector<int64_t> peaks;
  };
  using enum configs::PipelineConfig::Schedule;
  const std::vector<Case> cases = {
      {kGPipe, {2, 1, 4}, 15, {4, 4}},
      {kGPipe, {4, 1, 4}, 21, {4, 4, 4, 4}},
      {kGPipe, {4, 1, 8}, 33, {8, 8, 8, 8}},
      {kGPipe, {8, 1, 32}, 117, {32, 32, 32, 32, 32, 32, 32, 32}},
      {k1F1B, {2, 1, 4}, 15, {2, 1}},
      {k1F1B, {4, 1, 4}, 21, {4, 3, 2, 1}},
      {k1F1B, {4, 1, 8}, 33, {4, 3, 2, 1}},
      {k1F1B, {8, 1, 32}, 117, {8, 7, 6, 5, 4, 3, 2, 1}},
      {kInterleaved1F1B, {2, 2, 4}, 27, {5, 3}},
      {kInterleaved1F1B, {4, 2, 4}, 33, {8, 8, 7, 5}},
      {kInterleaved1F1B, {4, 2, 8}, 57, {11, 9, 7, 5}},
      {kInterleaved1F1B, {8, 2, 32}, 213, {23, 21, 19, 17, 15, 13, 11, 9}},
      {kZbH1, {2, 1, 4}, 13, {2, 2}},
      {kZbH1, {4, 1, 4}, 15, {4, 4, 4, 4}},
      {kZbH1, {4, 1, 8}, 27, {4, 4, 4, 4}},
      {kZbH1, {8, 1, 32}, 103, {8, 8, 8, 8, 8, 8, 8, 8}},
      {kZbV, {2, 2, 4}, 25, {4, 4}},
      {kZbV, {4, 2, 4}, 30, {5, 6, 7, 8}},
      {kZbV, {4, 2, 8}, 51, {8, 8, 8, 8}},
      {kZbV, {8, 2, 32}, 199, {16, 16, 16, 16, 16, 16, 16, 16}},
  };
  for (const Case& one : cases) {
    CAPTURE(static_cast<int>(one.schedule));
    CAPTURE(one.shape.ranks);
    CAPTURE(one.shape.micro_batches);
    const ScheduleCheck check = simulate(one.schedule, one.shape);
    CHECK(check.ends);
    CHECK(check.makespan == one.makespan);
    CHECK(check.peaks == one.peaks);
  }
}

TEST_CASE("no schedule dead-locks on links of any capacity, and each pass is run once") {
  for (const Kind& kind : kKinds) {
    for (const int64_t chunks : kind.chunks) {
      for (int64_t ranks = 1; ranks <= 8; ++ranks) {
        for (int64_t micro_batches = 1; micro_batches <= 32; ++micro_batches) {
          const PipelineShape shape{ranks, chunks, micro_batches};
          CAPTURE(static_cast<int>(kind.schedule));
          CAPTURE(chunks);
          CAPTURE(ranks);
          CAPTURE(micro_batches);
          for (int64_t rank = 0; rank < ranks; ++rank) check_passes(kind.schedule, shape, rank);
          for (const int64_t capacity : {int64_t{1}, int64_t{2}, int64_t{1'000'000}})
            CHECK(simulate(kind.schedule, shape, capacity).ends);
        }
      }
    }
  }
}

}  // namespace zeroth::engine::pipeline_schedule_test
