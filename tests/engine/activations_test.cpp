#include "engine/memory/activations.h"

#include <doctest/doctest.h>

namespace zeroth::engine::activations_test {
namespace {

// Bytes per token are small powers of ten, so that sums can be read.
BlockBytes block(double output, double kept) {
  return {.output = {.per_token = output},
          .no_grad = {.per_token = output + 3},
          .forward = {.per_token = kept + 0.5},
          .kept = {.per_token = kept},
          .backward = {.fixed = 7, .per_token = output},
          .freed = {.per_token = kept}};
}

ChainBytes chain() {
  ChainBytes chain;
  chain.first = block(10, 10);
  chain.middle = block(10, 100);
  chain.last = block(1, 1000);
  return chain;
}

// A step of six blocks, of one micro-batch or breadth first of several.
StepSchedule segments(int64_t every_nth, int64_t checkpoints = 0, size_t first_trained = 0,
                      int64_t micro_batches = 1) {
  configs::Config config;
  if (micro_batches > 1)
    config.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
  config.recompute = {.every_nth_block = every_nth, .number_checkpoints = checkpoints};
  return plan_step(PipelinePartition::one_rank(6, config.pipeline.schedule), config, micro_batches,
                   first_trained);
}

}  // namespace

TEST_CASE("graphs of all blocks stand when the last block's backward begins") {
  CHECK(activation_bytes(chain(), segments(0), 6, 2) == 2 * (10 + 4 * 100 + 1000 + 1) + 7);
  CHECK(activation_bytes(chain(), segments(0), 6, 0) == 7);
}

TEST_CASE("recomputed blocks have graphs one segment at a time") {
  // The last block's graph beside its input; no graph of another block.
  CHECK(activation_bytes(chain(), segments(1), 6, 1) == 10 + 1000 + 7 + 1);
  ChainBytes wide = chain();
  wide.middle = block(10, 5000);
  CHECK(activation_bytes(wide, segments(1), 6, 1) == 5000 + 7 + 10);
  // Two checkpoints: segments of three blocks, of which the last one keeps its graphs.
  const auto two = segments(0, 2);
  REQUIRE(two.chunks.front().size() == 2);
  CHECK(activation_bytes(chain(), two, 6, 1) == 10 + 2 * 100 + 1000 + 7 + 1);
}

TEST_CASE("blocks before the first trained one keep nothing") {
  CHECK(activation_bytes(chain(), segments(0, 0, 3), 6, 1) == 10 + 2 * 100 + 1000 + 7 + 1);
}

TEST_CASE("breadth first, all micro-batches' graphs and outputs stand beside each other") {
  // The last block's graph stands for one micro-batch at a time.
  CHECK(activation_bytes(chain(), segments(0, 0, 0, 3), 6, 1) == 3 * (10 + 4 * 100) + 1000 + 7 + 1);
  // Recomputed blocks hand saved inputs on, the last of them an output to the last block.
  CHECK(activation_bytes(chain(), segments(1, 0, 0, 3), 6, 1) == 3 * 10 + 1000 + 7 + 1);
  // Frozen blocks hand on outputs.
  CHECK(activation_bytes(chain(), segments(0, 0, 3, 3), 6, 1) == 3 * (10 + 2 * 100) + 1000 + 7 + 1);
}

TEST_CASE("the first trained block computes no gradient of its input") {
  // Blocks free their graph, less the gradient of their input.
  ChainBytes exact = chain();
  exact.middle.freed = exact.last.freed = {};
  exact.middle.freed.per_token = 100;  // the gradients of output and input are as large
  exact.last.freed.per_token = 1000 - 10;
  CHECK(activation_bytes(exact, segments(0, 0, 3, 1), 6, 1) == 10 + 2 * 100 + 1000 + 7 + 1);
  // Of those whose last block is done, gradients stand in place of what it was handed.
  CHECK(activation_bytes(exact, segments(0, 0, 3, 3), 6, 1) ==
        3 * (10 + 2 * 100) + 2 * 10 + 1000 + 7 + 1);
}

TEST_CASE("logits that do not fit a chunk are made chunk by chunk, in backward again") {
  ChainBytes chunked = chain();
  chunked.chunked = {.output = {},
                     .no_grad = {.per_token = 900},
                     .forward = {.per_token = 900},
                     .kept = {.per_token = 900},
                     .backward = {.per_token = 30},
                     .freed = {.per_token = 900}};
  chunked.chunk_tokens = 4;
  const int64_t before = 10 + 4 * 100 + 1000;  // per token
  CHECK(activation_bytes(chunked, segments(0), 6, 4) == 4 * (before + 900 + 30 + 1) + 7);
  CHECK(activation_bytes(chunked, segments(0), 6, 9) == 9 * (before + 1) + 4 * (900 + 30) + 7);
  chunked.chunk_tokens = 1;
  CHECK(evaluation_bytes(chunked, 3) == 3 * (10 + 1 + 3) + 900);
}

TEST_CASE("an evaluation has one block's input and output at a time") {
  CHECK(evaluation_bytes(chain(), 3) == 3 * (10 + 10 + 3));
}

}  // namespace zeroth::engine::activations_test
