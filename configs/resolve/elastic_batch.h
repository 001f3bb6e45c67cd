// DeepSpeed's elasticity: one global batch that can be partitioned over as many numbers of ranks as
// possible, and the micro-batch for the current ranks. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeroth::configs {

inline constexpr int64_t kMaxElasticBatch = 1'000'000'000;
inline constexpr size_t kMaxElasticMicroBatches = 64;

// ElasticVersion selects how the batch is chosen.
enum class ElasticVersion {
  kAnyRanks,    // 0.1: for the most numbers of data-parallel ranks
  kWholeNodes,  // 0.2: for the most numbers of nodes; if the current ranks do not fit, for them
                // alone
};

struct ElasticRule {
  int64_t max_batch = 2000;            // 1 to kMaxElasticBatch
  std::vector<int64_t> micro_batches;  // 1 to kMaxElasticMicroBatches of them, each at least 1
  int64_t min_ranks = 1;               // at least 1
  int64_t max_ranks = 10'000;          // at least min_ranks
  ElasticVersion version = ElasticVersion::kWholeNodes;
  int64_t ranks_per_node = 1;        // at least 1; like the next one used by kWholeNodes only
  int64_t tensor_parallel_size = 1;  // ranks that split a layer; divides ranks_per_node
  bool prefer_larger = true;         // of batches that are equally good
};

struct ElasticBatch {
  int64_t batch = 0;                     // 0: no batch fits, and the other members are empty
  std::vector<int64_t> data_ranks = {};  // numbers over which it can be partitioned, ascending
  int64_t micro_batch = 0;               // for the given ranks; 0: they are not among data_ranks
};

// Chooses the batch for `data_ranks`, at least 1. Throws an Error if a micro-batch exceeds the
// maximum batch (with kWholeNodes its part of one node), or if tensor_parallel_size does not divide
// ranks_per_node.
//
// The candidates are each micro-batch and the least common multiple of all of them, times the
// largest highly composite number such that the product is at most max_batch. kWholeNodes counts
// nodes; their bounds are min_ranks and max_ranks over ranks_per_node, rounded down, 0 meaning no
// bound. The result has the largest micro-batch that divides a rank's samples. With kWholeNodes
// DeepSpeed divides by all ranks instead of data-parallel ranks there, and may find none.
ElasticBatch elastic_batch(const ElasticRule& rule, int64_t data_ranks);

}  // namespace zeroth::configs
