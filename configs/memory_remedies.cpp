#include "configs/memory_remedies.h"

#include <fmt/format.h>

namespace zeroth::configs {
namespace {

constexpr size_t kMost = 3;

int64_t smallest_factor(int64_t value) {
  for (int64_t factor = 2; factor <= value / factor; ++factor) {
    if (value % factor == 0) return factor;
  }
  return value;
}

std::string smaller_micro_batch(const BatchConfig& batch) {
  const int64_t factor = smallest_factor(batch.micro_batch_size);
  return fmt::format(
      "--micro-batch {} with --accumulation {} in place of {} and {}: the same global batch",
      batch.micro_batch_size / factor, batch.accumulation_steps * factor, batch.micro_batch_size,
      batch.accumulation_steps);
}

bool recomputes_all(const RecomputeConfig& recompute) {
  return recompute.every_nth_block == 1 || recompute.number_checkpoints > 0;
}

}  // namespace

std::vector<std::string> memory_remedies(const Config& config, const MemoryFacts& facts) {
  std::vector<std::string> all;
  const int64_t micro = config.batch.micro_batch_size;
  if (facts.trains && micro > 1) all.push_back(smaller_micro_batch(config.batch));
  if (!facts.trains && micro > 1) {
    all.push_back(fmt::format("--eval-micro-batch {} in place of {}", micro / 2, micro));
  }
  if (facts.trains && !recomputes_all(config.recompute)) {
    all.push_back("--gradient-checkpointing: blocks keep only their input, and run twice");
  }
  if (facts.world_size > 1 && config.zero.stage < 2 && facts.trains) {
    all.push_back(
        fmt::format("zero_optimization.stage 2 in place of {}: gradients and optimizer "
                    "state are sharded over the ranks",
                    config.zero.stage));
  } else if (facts.world_size > 1 && config.zero.stage < 3) {
    all.push_back(fmt::format(
        "zero_optimization.stage 3 in place of {}: parameters are sharded over the ranks too",
        config.zero.stage));
  }
  if (config.precision == Precision::kFp32) {
    all.push_back("--bf16: activations and working weights in half the bytes");
  }
  if (facts.seq_len > 1) {
    all.push_back(fmt::format("--seq-len {} in place of {}: shorter samples", facts.seq_len / 2,
                              facts.seq_len));
  }
  all.push_back("more ranks with zero_optimization.stage 3: each holds a smaller shard");
  if (config.zero.stage == 3) {
    all.push_back("zero_optimization.stage3_prefetch_bucket_size 0: fewer blocks gathered ahead");
  }
  all.push_back("a smaller model");
  if (all.size() > kMost) all.resize(kMost);
  return all;
}

}  // namespace zeroth::configs
