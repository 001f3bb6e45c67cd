#include "engine/step/partition.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "tests/support/chain.h"

namespace zeroth::engine::partition_test {
namespace {

using Ends = std::vector<size_t>;
using Schedule = configs::PipelineConfig::Schedule;

configs::PipelineConfig stages(int64_t count, const std::string& partition = "uniform",
                               Schedule schedule = Schedule::k1F1B, int64_t chunks = 0) {
  return {.stages = count, .schedule = schedule, .virtual_stages = chunks, .partition = partition};
}

}  // namespace

TEST_CASE("the heaviest part is as light as can be, and parts differ little") {
  CHECK(partition_balanced({1, 1, 1, 1}, 2) == Ends{2, 4});
  CHECK(partition_balanced({1, 1, 1, 1, 1, 1, 1, 1, 1, 3}, 4) == Ends{3, 6, 9, 10});
  CHECK(partition_balanced({5, 1, 1, 1}, 2) == Ends{1, 4});
  CHECK(partition_balanced({0, 1, 1, 0}, 4) == Ends{1, 2, 3, 4});
  CHECK(partition_balanced({0, 0, 0, 1}, 2).back() == 4);
}

TEST_CASE("no other partition has a lighter heaviest part") {
  const std::vector<double> weights = {3, 1, 4, 1, 5, 9, 2, 6};
  const Ends ends = partition_balanced(weights, 3);
  const auto heaviest = [&](size_t first, size_t second) {
    const auto sum = [&](size_t begin, size_t end) {
      return std::accumulate(weights.begin() + static_cast<ptrdiff_t>(begin),
                             weights.begin() + static_cast<ptrdiff_t>(end), 0.0);
    };
    return std::max({sum(0, first), sum(first, second), sum(second, weights.size())});
  };
  double lightest = 1e9;
  for (size_t first = 1; first + 1 < weights.size(); ++first) {
    for (size_t second = first + 1; second < weights.size(); ++second)
      lightest = std::min(lightest, heaviest(first, second));
  }
  CHECK(heaviest(ends[0], ends[1]) == lightest);
}

TEST_CASE("a chain is divided by what the config names") {
  const model::Blocks blocks = testing::make_chain({.vocab = 64, .hidden = 4, .layers = 4});
  CHECK(partition_blocks(blocks, stages(2)).ends == Ends{3, 6});
  // Embedding and head have 256 and more trained elements, a layer has 20.
  CHECK(partition_blocks(blocks, stages(3, "parameters")).ends == Ends{1, 5, 6});
  // The embedding looks its rows up.
  CHECK(partition_blocks(blocks, stages(2, "time")).ends == Ends{5, 6});
  CHECK(partition_blocks(blocks, stages(2, "time"), {1, 1, 1, 1, 1, 1}).ends == Ends{3, 6});
  CHECK(partition_blocks(blocks, stages(2, "best"), {9, 1, 1, 1, 1, 1}).ends == Ends{1, 6});
}

TEST_CASE("chunks are dealt out to ranks, there and back in a V") {
  const model::Blocks blocks = testing::make_chain({.layers = 6});
  CHECK(
      partition_blocks(blocks, stages(2, "uniform", Schedule::kInterleaved1F1B)).block_pp_ranks() ==
      std::vector{0, 0, 1, 1, 0, 0, 1, 1});
  CHECK(partition_blocks(blocks, stages(2, "uniform", Schedule::kZbV)).block_pp_ranks() ==
        std::vector{0, 0, 1, 1, 1, 1, 0, 0});
  CHECK(partition_blocks(blocks, stages(2, "uniform", Schedule::kBreadthFirst)).block_pp_ranks() ==
        std::vector{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(partition_blocks(blocks, stages(1)).block_pp_ranks().empty());
  CHECK(partition_blocks(blocks, stages(1, "uniform", Schedule::kBreadthFirst)).ends.size() == 8);
}

TEST_CASE("too few blocks and a type that no block has are refused") {
  const model::Blocks blocks = testing::make_chain({.layers = 1});
  CHECK_THROWS_WITH_AS(partition_blocks(blocks, stages(4)),
                       "pipeline.stages 4 with 1 chunks of blocks each (pipeline.virtual_stages) "
                       "divide the model into 4 parts, but it has 3 blocks",
                       Error);
  CHECK_THROWS_WITH_AS(partition_blocks(blocks, stages(2, "type:nothing")),
                       doctest::Contains("matches no block"), Error);
  CHECK_THROWS_WITH_AS(partition_blocks(blocks, stages(2, "type:(")),
                       doctest::Contains("is not a regular expression"), Error);
}

}  // namespace zeroth::engine::partition_test
