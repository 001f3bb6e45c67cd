#include "engine/step/schedule.h"

#include <doctest/doctest.h>

#include <map>
#include <tuple>
#include <utility>

namespace zeroth::engine::schedule_test {
namespace {

using configs::PipelineConfig;

StepSchedule plan(size_t blocks, const configs::RecomputeConfig& recompute,
                  int64_t micro_batches = 1, size_t first_trained = 0,
                  PipelineConfig::Schedule schedule = PipelineConfig::Schedule::k1F1B) {
  configs::Config config;
  config.recompute = recompute;
  config.pipeline.schedule = schedule;
  return plan_step(PipelinePartition::one_rank(blocks, schedule), config, micro_batches,
                   first_trained);
}

StepSchedule breadth_first(size_t blocks, const configs::RecomputeConfig& recompute,
                           int64_t micro_batches, size_t first_trained = 0) {
  return plan(blocks, recompute, micro_batches, first_trained,
              PipelineConfig::Schedule::kBreadthFirst);
}

// The segments of the only chunk.
std::vector<Segment> segments(size_t blocks, const configs::RecomputeConfig& recompute) {
  const StepSchedule schedule = plan(blocks, recompute);
  REQUIRE(schedule.chunks.size() == 1);
  return schedule.chunks.front();
}

// "F0a B1b": forward of micro-batch 0 through chunk 0, backward of 1 through chunk 1.
std::string describe(const StepSchedule& schedule) {
  std::string text;
  for (const PipeOp& op : schedule.ops) {
    text += op.kind == PipeOpKind::kForward ? " F" : " B";
    text += std::to_string(op.micro_batch) + static_cast<char>('a' + op.chunk);
  }
  return text.substr(1);
}

}  // namespace

TEST_CASE("without recompute one segment keeps everything") {
  CHECK((segments(5, {}) == std::vector<Segment>{{0, 5, false}}));
}

TEST_CASE("every N-th block keeps only its input, but for the last of the chain") {
  const std::vector<Segment> all = segments(3, {.every_nth_block = 1});
  CHECK((all == std::vector<Segment>{{0, 1, true}, {1, 2, true}, {2, 3, false}}));
  const std::vector<Segment> second = segments(4, {.every_nth_block = 2});
  CHECK(
      (second == std::vector<Segment>{{0, 1, false}, {1, 2, true}, {2, 3, false}, {3, 4, false}}));
}

TEST_CASE("K kept inputs are evenly spaced and cover the chain") {
  CHECK((segments(6, {.number_checkpoints = 3}) ==
         std::vector<Segment>{{0, 2, true}, {2, 4, true}, {4, 6, false}}));
  CHECK((segments(3, {.number_checkpoints = 50}).size() == 3));
  for (const int64_t count : {1, 2, 3, 4, 5, 6, 7}) {
    size_t next = 0;
    for (const Segment& segment : segments(7, {.number_checkpoints = count})) {
      CHECK(segment.first == next);
      CHECK(segment.end > segment.first);
      next = segment.end;
    }
    CHECK(next == 7);
  }
}

TEST_CASE("one micro-batch follows the other through the chain") {
  CHECK(describe(plan(3, {}, 3)) == "F0a B0a F1a B1a F2a B2a");
  CHECK(plan(3, {}, 3).max_in_flight == 1);
}

TEST_CASE("breadth first, all micro-batches pass a block, and the last block alternates") {
  const StepSchedule schedule = breadth_first(3, {}, 2);
  CHECK(describe(schedule) == "F0a F1a F0b F1b F0c B0c F1c B1c B0b B1b B0a B1a");
  CHECK((schedule.chunks ==
         std::vector<ModelChunk>{{{0, 1, false}}, {{1, 2, false}}, {{2, 3, false}}}));
  CHECK(schedule.max_in_flight == 2);
  CHECK(describe(breadth_first(2, {}, 1)) == "F0a F0b B0b B0a");
}

TEST_CASE("breadth first, a segment ends with its block and the last one is not recomputed") {
  CHECK((breadth_first(4, {.number_checkpoints = 1}, 2).chunks ==
         std::vector<ModelChunk>{{{0, 1, true}}, {{1, 2, true}}, {{2, 3, true}}, {{3, 4, false}}}));
  CHECK((breadth_first(3, {.every_nth_block = 1}, 2, 1).chunks ==
         std::vector<ModelChunk>{{{0, 1, false, false}}, {{1, 2, true}}, {{2, 3, false}}}));
}

TEST_CASE("every schedule runs each pass once, in the order of the micro-batches") {
  for (const auto kind :
       {PipelineConfig::Schedule::k1F1B, PipelineConfig::Schedule::kBreadthFirst}) {
    for (const int64_t micro_batches : {1, 2, 5}) {
      const StepSchedule schedule = plan(4, {}, micro_batches, 0, kind);
      std::map<std::pair<PipeOpKind, size_t>, int64_t> passes;
      int64_t in_flight = 0, max_in_flight = 0;
      const size_t last = schedule.chunks.size() - 1;
      for (const PipeOp& op : schedule.ops) {
        const bool forward = op.kind == PipeOpKind::kForward;
        CHECK(passes[std::pair(op.kind, op.chunk)]++ == op.micro_batch);
        // What it continues has been done.
        if (forward && op.chunk > 0)
          CHECK(passes[std::pair(op.kind, op.chunk - 1)] > op.micro_batch);
        if (!forward) {
          CHECK(passes[std::pair(PipeOpKind::kForward, op.chunk)] > op.micro_batch);
          if (op.chunk < last) CHECK(passes[std::pair(op.kind, op.chunk + 1)] > op.micro_batch);
        }
        if (op.chunk == 0) in_flight += forward ? 1 : -1;
        max_in_flight = std::max(max_in_flight, in_flight);
      }
      for (const auto& [pass, count] : passes) CHECK(count == micro_batches);
      CHECK(passes.size() == 2 * schedule.chunks.size());
      CHECK(max_in_flight == schedule.max_in_flight);
    }
  }
}

TEST_CASE("accesses are the blocks in the order in which operations gather them") {
  CHECK((block_accesses(plan(3, {})) == std::vector<size_t>{0, 1, 2, 1, 0}));
  CHECK((block_accesses(plan(2, {}, 2)) == std::vector<size_t>{0, 1, 0, 1, 0}));
  // Two periods, and what is left of them at the end.
  CHECK(block_accesses(plan(2, {}, 9), 14) == block_accesses(plan(2, {}, 2)));
  CHECK(block_accesses(plan(2, {}, 9), 16) == block_accesses(plan(2, {}, 1)));
  CHECK((block_accesses(plan(3, {.every_nth_block = 1})) == std::vector<size_t>{0, 1, 2, 1, 0}));
  // Segment {0, 1, 2} runs forward again up to its last block, whose forward shares the access of
  // its backward.
  CHECK((block_accesses(plan(6, {.number_checkpoints = 2})) ==
         std::vector<size_t>{0, 1, 2, 3, 4, 5, 4, 3, 0, 1, 2, 1, 0}));
  // However many micro-batches there are.
  CHECK((block_accesses(breadth_first(3, {}, 7)) == std::vector<size_t>{0, 1, 2, 1, 0}));
}

TEST_CASE("backward reaches trained blocks only, each once per micro-batch") {
  CHECK((backward_order(plan(3, {}, 2)) == std::vector<size_t>{2, 1, 0, 2, 1, 0}));
  CHECK((backward_order(plan(3, {}, 2, 1)) == std::vector<size_t>{2, 1, 2, 1}));
  CHECK((backward_order(breadth_first(3, {}, 2, 1)) == std::vector<size_t>{2, 2, 1, 1}));
}

TEST_CASE("saved inputs are those of all micro-batches in flight") {
  const configs::RecomputeConfig all{.every_nth_block = 1};
  CHECK(max_saved_inputs(plan(5, {}, 3)) == 0);
  CHECK(max_saved_inputs(plan(5, all, 3)) == 3);  // neither the first block's nor the last one's
  CHECK(max_saved_inputs(breadth_first(5, all, 3)) == 9);
  CHECK(max_saved_inputs(breadth_first(5, all, 3, 2)) == 6);
}

}  // namespace zeroth::engine::schedule_test
