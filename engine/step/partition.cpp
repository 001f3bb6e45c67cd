#include "engine/step/partition.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <regex>
#include <string>
#include <utility>

#include "base/error.h"

namespace zeroth::engine {
namespace {

using configs::PipelineConfig;
using Schedule = PipelineConfig::Schedule;

constexpr std::string_view kType = "type:";

double trained_elements(const model::Block& block) {
  double elements = 0;
  for (const torch::Tensor& parameter : block.parameters()) {
    if (parameter.requires_grad()) elements += static_cast<double>(parameter.numel());
  }
  return elements;
}

// A product takes a time in proportion to its matrix. The first block looks its rows up.
double matrix_elements(const model::Block& block) {
  double elements = 0;
  for (const torch::Tensor& parameter : block.parameters()) {
    if (parameter.dim() > 1) elements += static_cast<double>(parameter.numel());
  }
  return elements;
}

std::vector<double> type_weights(const model::Blocks& blocks, const std::string& pattern) {
  std::vector<double> weights;
  try {
    const std::regex type(pattern, std::regex::ECMAScript | std::regex::icase);
    for (const auto& block : blocks)
      weights.push_back(std::regex_search(block->name(), type) ? 1.0 : 0.0);
  } catch (const std::regex_error& error) {
    throw Error("pipeline.partition: \"type:{}\" is not a regular expression: {}", pattern,
                error.what());
  }
  if (std::ranges::count(weights, 1.0) > 0) return weights;
  throw Error("pipeline.partition: \"type:{}\" matches no block; their types are {} to {}", pattern,
              blocks.front()->name(), blocks.back()->name());
}

// Returns the chunks that each rank has.
int64_t num_chunks(const PipelineConfig& config, size_t num_blocks) {
  if (config.virtual_stages > 0) return config.virtual_stages;
  switch (config.schedule) {
    case Schedule::kInterleaved1F1B:
    case Schedule::kZbV:
      return 2;
    case Schedule::kBreadthFirst:
      return std::max<int64_t>(1, static_cast<int64_t>(num_blocks) / config.stages);
    default:
      return 1;
  }
}

}  // namespace

std::vector<double> block_weights(const model::Blocks& blocks, const std::string& partition,
                                  const std::vector<double>& times) {
  if (partition.starts_with(kType)) return type_weights(blocks, partition.substr(kType.size()));
  const bool by_time = partition == "time" || partition == "best";
  if (by_time && !times.empty()) {
    ZEROTH_CHECK(times.size() == blocks.size(), "{} times of {} blocks", times.size(),
                 blocks.size());
    return times;
  }
  std::vector<double> weights(blocks.size(), 1.0);
  if (partition == "uniform") return weights;
  for (size_t i = 0; i < blocks.size(); ++i) {
    weights[i] = partition == "parameters" ? trained_elements(*blocks[i])
                 : i == 0                  ? 0.0
                                           : matrix_elements(*blocks[i]);
  }
  return weights;
}

PipelinePartition PipelinePartition::one_rank(size_t num_blocks, Schedule schedule) {
  PipelinePartition partition{.schedule = schedule, .ranks = 1, .ends = {num_blocks}};
  if (schedule == Schedule::kBreadthFirst) {
    partition.ends.resize(num_blocks);
    std::iota(partition.ends.begin(), partition.ends.end(), size_t{1});
  }
  return partition;
}

std::vector<int> PipelinePartition::block_pp_ranks() const {
  if (ranks == 1) return {};
  std::vector<int> pp_ranks;
  const PipelineShape of_all = shape(1);
  for (int64_t stage = 0; stage < of_all.virtual_stages(); ++stage)
    pp_ranks.resize(ends[static_cast<size_t>(stage)],
                    static_cast<int>(rank_of(schedule, of_all, stage)));
  return pp_ranks;
}

std::vector<size_t> partition_balanced(const std::vector<double>& weights, size_t parts) {
  const size_t count = weights.size();
  ZEROTH_CHECK(parts > 0 && parts <= count, "{} parts of {} weights", parts, count);
  std::vector<double> sums(count + 1, 0.0);
  std::partial_sum(weights.begin(), weights.end(), sums.begin() + 1);
  // The heaviest run, then the sum of the runs' squares, which is least where they differ least.
  using Cost = std::pair<double, double>;
  const Cost none = {std::numeric_limits<double>::infinity(), 0.0};
  std::vector<std::vector<Cost>> costs(parts + 1, std::vector<Cost>(count + 1, none));
  std::vector<std::vector<size_t>> begins(parts + 1, std::vector<size_t>(count + 1, 0));
  costs[0][0] = {0.0, 0.0};
  for (size_t part = 1; part <= parts; ++part) {
    for (size_t end = part; end <= count; ++end) {
      for (size_t begin = part - 1; begin < end; ++begin) {
        const double run = sums[end] - sums[begin];
        const auto& [heaviest, squares] = costs[part - 1][begin];
        const Cost cost = {std::max(heaviest, run), squares + run * run};
        if (cost >= costs[part][end]) continue;
        costs[part][end] = cost;
        begins[part][end] = begin;
      }
    }
  }
  std::vector<size_t> ends(parts);
  for (size_t part = parts, end = count; part > 0; end = begins[part--][end]) ends[part - 1] = end;
  return ends;
}

PipelinePartition partition_blocks(const model::Blocks& blocks, const PipelineConfig& config,
                                   const std::vector<double>& times) {
  const int64_t chunks = num_chunks(config, blocks.size());
  if (!config.is_on() && (chunks == 1 || chunks == std::ssize(blocks)))
    return PipelinePartition::one_rank(blocks.size(), config.schedule);
  const int64_t parts = config.stages * chunks;
  if (parts > std::ssize(blocks)) {
    throw Error(
        "pipeline.stages {} with {} chunks of blocks each (pipeline.virtual_stages) divide the "
        "model into {} parts, but it has {} blocks",
        config.stages, chunks, parts, blocks.size());
  }
  return {.schedule = config.schedule,
          .ranks = config.stages,
          .ends = partition_balanced(block_weights(blocks, config.partition, times),
                                     static_cast<size_t>(parts))};
}

}  // namespace zeroth::engine
