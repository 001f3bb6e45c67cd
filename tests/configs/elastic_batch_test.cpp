// The numbers are those of DeepSpeed 0.19.7's compute_elastic_config, run.
#include "configs/resolve/elastic_batch.h"

#include "tests/configs/support.h"

namespace zeroth::configs::elastic_batch_test {
namespace {

using Counts = std::vector<int64_t>;

ElasticRule any_ranks(int64_t max_batch, Counts micro_batches, int64_t min = 1,
                      int64_t max = 10'000) {
  return {.max_batch = max_batch,
          .micro_batches = std::move(micro_batches),
          .min_ranks = min,
          .max_ranks = max,
          .version = ElasticVersion::kAnyRanks};
}

// Of the documentation of DeepSpeed and its tests.
const ElasticRule kLarge = any_ranks(10'000, {8, 12, 16, 17}, 32, 1500);

ElasticRule by_nodes(int64_t per_node, int64_t tensor) {
  ElasticRule rule = kLarge;
  rule.version = ElasticVersion::kWholeNodes;
  rule.ranks_per_node = per_node;
  rule.tensor_parallel_size = tensor;
  return rule;
}

struct Row {
  int64_t data_ranks, micro_batch, accumulation;
};

void check_rows(const ElasticRule& rule, int64_t batch, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    CAPTURE(row.data_ranks);
    const ElasticBatch found = elastic_batch(rule, row.data_ranks);
    CHECK(found.batch == batch);
    CHECK(found.micro_batch == row.micro_batch);
    if (row.micro_batch > 0) CHECK(batch == row.micro_batch * row.accumulation * row.data_ranks);
  }
}

}  // namespace

TEST_CASE("the batch is the one for the most numbers of ranks") {
  CHECK(elastic_batch(kLarge, 32).data_ranks == Counts{32,  34,  36,  48,  51,  64,  68,  72,
                                                       96,  102, 136, 144, 153, 192, 204, 272,
                                                       288, 306, 408, 576, 612, 816, 1224});
  check_rows(kLarge, 9792,
             {{32, 17, 18}, {34, 16, 18}, {64, 17, 9}, {136, 12, 6}, {1224, 8, 1}, {128, 0, 0}});
  const ElasticRule small = any_ranks(32, {1, 2, 3, 7});
  CHECK(elastic_batch(small, 1).data_ranks == Counts{1, 2, 3, 4, 6, 8, 12, 24});
  check_rows(small, 24, {{4, 3, 2}, {7, 0, 0}});
  CHECK(elastic_batch(any_ranks(100, {8, 10, 12}), 1).data_ranks == Counts{1, 2, 3, 4, 6, 8, 12});
  check_rows(any_ranks(100, {8, 10, 12}), 96, {{12, 8, 1}});
  const Counts of_1680 = elastic_batch(any_ranks(2000, {2, 4, 6}), 1).data_ranks;
  CHECK(of_1680.size() == 32);
  CHECK(of_1680.back() == 840);
  check_rows(any_ranks(2000, {2, 4, 6}), 1680, {{1, 6, 280}, {840, 2, 1}});
  const ElasticRule eight = any_ranks(16, {1, 2, 4}, 1, 8);
  CHECK(elastic_batch(eight, 1).data_ranks == Counts{1, 2, 3, 4, 6});
  check_rows(eight, 12, {{1, 4, 3}, {2, 2, 3}, {3, 4, 1}, {4, 1, 3}, {6, 2, 1}});
}

TEST_CASE("a common multiple that is larger than the batch may be is none") {
  const ElasticRule rule = any_ranks(4, {1, 2, 3, 4}, 1, 4);
  CHECK(elastic_batch(rule, 1).data_ranks == Counts{1, 2, 4});
  check_rows(rule, 4, {{4, 1, 1}, {3, 0, 0}});
  const ElasticRule huge = any_ranks(kMaxElasticBatch, {999'999'937, 999'999'929, 999'999'893});
  CHECK(elastic_batch(huge, 1).batch == 999'999'937);
}

TEST_CASE("of batches that are as good the larger is taken, or the smaller") {
  ElasticRule rule = any_ranks(6, {5, 3});  // 5 and 6: for 1, and for 1 and 2
  CHECK(elastic_batch(rule, 1).batch == 6);
  rule = any_ranks(5, {5, 3});  // 5 and 3
  CHECK(elastic_batch(rule, 1).batch == 5);
  rule.prefer_larger = false;
  CHECK(elastic_batch(rule, 1).batch == 3);
}

TEST_CASE("whole nodes are counted, and data ranks are what a batch is dealt over") {
  // 16 ranks of 8 on a node, four to a layer: no number of nodes from 4 on
  const ElasticBatch these = elastic_batch(by_nodes(8, 4), 4);
  CHECK(these.batch == 9996);
  CHECK(these.data_ranks == Counts{4});
  CHECK(these.micro_batch == 17);
  CHECK(9996 == 17 * 147 * 4);
  // 32 ranks: DeepSpeed finds the batch, but no micro-batch for 32
  const ElasticBatch four_nodes = elastic_batch(by_nodes(8, 4), 8);
  CHECK(four_nodes.batch % 8 == 0);
  CHECK(four_nodes.micro_batch > 0);
  CHECK(four_nodes.batch / 8 % four_nodes.micro_batch == 0);
  CHECK(elastic_batch(by_nodes(1, 1), 32).batch == 9792);
  CHECK(elastic_batch(by_nodes(1, 1), 32).micro_batch == 17);
  CHECK_THROWS_WITH_AS(elastic_batch(by_nodes(8, 16), 4),
                       "8 ranks of a node cannot be divided into tensor-parallel groups of 16",
                       Error);
}

TEST_CASE("what fits nothing is told by a batch of 0, a micro-batch that is too large by name") {
  CHECK(elastic_batch(any_ranks(10, {5}, 7, 9), 7).batch == 0);
  ElasticRule nodes = by_nodes(8, 1);
  CHECK(elastic_batch(nodes, 20'000).batch == 0);
  nodes.max_batch = 64;
  CHECK_THROWS_WITH_AS(
      elastic_batch(nodes, 8),
      "micro-batch 12 is larger than 8, the largest batch, 64, divided by the data ranks of a node",
      Error);
}

}  // namespace zeroth::configs::elastic_batch_test
