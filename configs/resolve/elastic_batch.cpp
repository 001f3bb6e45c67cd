#include "configs/resolve/elastic_batch.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "base/error.h"

namespace zeroth::configs {
namespace {

// Highly composite numbers, as far as DeepSpeed lists them.
constexpr int64_t kHighlyComposite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

struct CountBounds {
  int64_t max_batch, min_count, max_count;
};

// Returns the least common multiple, or `limit` + 1 if it exceeds `limit`.
int64_t least_common_multiple(const std::vector<int64_t>& values, int64_t limit) {
  int64_t multiple = 1;
  for (const int64_t value : values) {
    const int64_t factor = value / std::gcd(multiple, value);
    if (multiple > limit / factor) return limit + 1;
    multiple *= factor;
  }
  return multiple;
}

std::set<int64_t> candidate_batches(const std::vector<int64_t>& micro_batches, int64_t max_batch) {
  std::vector<int64_t> bases = micro_batches;
  bases.push_back(least_common_multiple(micro_batches, max_batch));
  std::set<int64_t> found;
  for (const int64_t base : bases) {
    if (base > max_batch) continue;
    const auto* const above = std::upper_bound(std::begin(kHighlyComposite),
                                               std::end(kHighlyComposite), max_batch / base);
    found.insert(base * *(above - 1));
  }
  return found;
}

// Returns the numbers of ranks or nodes over which a batch can be partitioned: for each micro-batch
// size, the divisors of the number of micro-batches.
std::set<int64_t> valid_counts(int64_t batch, const std::vector<int64_t>& micro_batches,
                               const CountBounds& bounds) {
  std::set<int64_t> counts;
  const auto add = [&](int64_t count) {
    if (count >= bounds.min_count && count <= bounds.max_count) counts.insert(count);
  };
  for (const int64_t micro : micro_batches) {
    if (batch % micro != 0) continue;
    const int64_t pieces = batch / micro;
    for (int64_t divisor = 1; divisor <= pieces / divisor; ++divisor) {
      if (pieces % divisor != 0) continue;
      add(divisor);
      add(pieces / divisor);
    }
  }
  return counts;
}

ElasticBatch best_candidate(const ElasticRule& rule, const CountBounds& bounds) {
  for (const int64_t micro : rule.micro_batches) {
    if (micro <= bounds.max_batch) continue;
    const std::string of =
        bounds.max_batch == rule.max_batch
            ? "the largest batch"
            : fmt::format("the largest batch, {}, divided by the data ranks of a node",
                          rule.max_batch);
    throw Error("micro-batch {} is larger than {}, {}", micro, bounds.max_batch, of);
  }
  ElasticBatch best;
  std::set<int64_t> best_counts;
  for (const int64_t batch : candidate_batches(rule.micro_batches, bounds.max_batch)) {
    std::set<int64_t> counts = valid_counts(batch, rule.micro_batches, bounds);
    // The candidates are in ascending order.
    if (counts.empty() || counts.size() < best_counts.size()) continue;
    if (counts.size() == best_counts.size() && !rule.prefer_larger) continue;
    best.batch = batch;
    best_counts = std::move(counts);
  }
  best.data_ranks.assign(best_counts.begin(), best_counts.end());
  return best;
}

int64_t largest_micro_batch(const ElasticRule& rule, int64_t samples) {
  int64_t largest = 0;
  for (const int64_t micro : rule.micro_batches)
    if (samples % micro == 0) largest = std::max(largest, micro);
  return largest;
}

// Returns the best batch for exactly these ranks.
ElasticBatch fit_ranks(const ElasticRule& rule, int64_t data_ranks) {
  ElasticBatch best;
  for (const int64_t micro : rule.micro_batches) {
    if (micro > rule.max_batch / data_ranks) continue;
    const int64_t step = micro * data_ranks, batch = rule.max_batch / step * step;
    if (best.batch == 0 || (batch > best.batch) == rule.prefer_larger) best.batch = batch;
  }
  if (best.batch == 0) return best;
  best.data_ranks = {data_ranks};
  best.micro_batch = largest_micro_batch(rule, best.batch / data_ranks);
  return best;
}

ElasticBatch fit_nodes(const ElasticRule& rule, int64_t data_ranks) {
  if (rule.ranks_per_node % rule.tensor_parallel_size != 0)
    throw Error("{} ranks of a node cannot be divided into tensor-parallel groups of {}",
                rule.ranks_per_node, rule.tensor_parallel_size);
  const int64_t per_node = rule.ranks_per_node / rule.tensor_parallel_size;
  const int64_t max_batch = rule.max_batch / per_node;
  const int64_t max_nodes = rule.max_ranks / rule.ranks_per_node;
  ElasticBatch best =
      best_candidate(rule, {max_batch, std::max<int64_t>(1, rule.min_ranks / rule.ranks_per_node),
                            max_nodes > 0 ? max_nodes : max_batch});
  best.batch *= per_node;
  for (int64_t& count : best.data_ranks) count *= per_node;
  const bool among = std::binary_search(best.data_ranks.begin(), best.data_ranks.end(), data_ranks);
  if (!among) return fit_ranks(rule, data_ranks);
  best.micro_batch = largest_micro_batch(rule, best.batch / data_ranks);
  return best;
}

}  // namespace

ElasticBatch elastic_batch(const ElasticRule& rule, int64_t data_ranks) {
  if (rule.version == ElasticVersion::kWholeNodes) return fit_nodes(rule, data_ranks);
  ElasticBatch best = best_candidate(rule, {rule.max_batch, rule.min_ranks, rule.max_ranks});
  if (std::binary_search(best.data_ranks.begin(), best.data_ranks.end(), data_ranks))
    best.micro_batch = largest_micro_batch(rule, best.batch / data_ranks);
  return best;
}

}  // namespace zeroth::configs
