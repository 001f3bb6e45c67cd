// DeepSpeed's elasticity: one global batch that can be dealt over as many numbers of ranks as
// possible, and the micro-batch for the ranks that there are. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeroth::configs {

inline constexpr int64_t kMaxElasticBatch = 1'000'000'000;
inline constexpr size_t kMaxElasticMicroBatches = 64;

// Two ways to choose the batch.
enum class ElasticVersion {
  kAnyRanks,    // 0.1: for the most numbers of data ranks
  kWholeNodes,  // 0.2: for the most numbers of nodes; where this one is not among them, what fits
                // it
};

struct ElasticRule {
  int64_t max_batch = 2000;            // 1 to kMaxElasticBatch
  std::vector<int64_t> micro_batches;  // 1 to kMaxElasticMicroBatches of them, each at least 1
  int64_t min_ranks = 1;               // at least 1
  int64_t max_ranks = 10'000;          // at least min_ranks
  ElasticVersion version = ElasticVersion::kWholeNodes;
  int64_t ranks_per_node = 1;        // at least 1; of kWholeNodes only, as the next
  int64_t tensor_parallel_size = 1;  // that split a layer; divides ranks_per_node
  bool prefer_larger = true;         // of batches that are as good
};

struct ElasticBatch {
  int64_t batch = 0;                     // 0: nothing fits, and the rest is empty
  std::vector<int64_t> data_ranks = {};  // that it can be dealt over, rising
  int64_t micro_batch = 0;               // for the given ranks; 0: they are not among data_ranks
};

// For `data_ranks` at least 1. Throws an Error where a micro-batch is larger than the batch may be
// (with kWholeNodes its part of one node), or where tensor_parallel_size does not divide
// ranks_per_node.
//
// The candidates for the batch are each micro-batch and the least common multiple of all of them,
// times the largest highly composite number that stays below max_batch. kWholeNodes counts nodes,
// with min_ranks and max_ranks over ranks_per_node, rounded down, 0 meaning no bound. Of the
// micro-batches that divide a rank's samples the largest is taken. With kWholeNodes DeepSpeed
// divides by all ranks in place of data ranks there, and may find none.
ElasticBatch elastic_batch(const ElasticRule& rule, int64_t data_ranks);

}  // namespace zeroth::configs
