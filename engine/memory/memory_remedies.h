// Suggestions for a user whose run has failed for lack of memory, and the fewest changes of its
// configuration with which it fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/config.h"

namespace zeroth::engine {

struct MemoryFacts {
  int64_t world_size = 1;
  int64_t seq_len = 1;
  bool trains = true;  // false: the run only evaluates
  enum class Shortage {
    kShared,  // CPU memory, of a run that computes on the CPU
    kDevice,  // memory of a GPU
    kHost     // CPU memory, of a run on GPUs
  };
  Shortage shortage = Shortage::kShared;
  bool activations = false;  // the need includes activations
};

// Returns another line of a message: the JSON to paste into ds_config.json to get from `before` to
// `after`, with an example nvme_path if there is none. Empty if no key changes.
std::string json_to_paste(const configs::Config& before, configs::Config after);

// Returns at most three suggestions, each with its JSON below it, the cheapest first. They include
// only what this configuration does not do already, and what relieves the memory that is short.
std::vector<std::string> memory_remedies(const configs::Config& config, const MemoryFacts& facts);

struct MemoryChange {
  std::string text;  // for the user: the setting to change
  std::function<void(configs::Config&)> apply;
};

// Returns the changes to smaller micro-batches with the same global batch, the largest first; none
// if a step keeps the activations of all of them.
std::vector<MemoryChange> smaller_micro_batches(const configs::Config& config);

// Returns the changes that this configuration does not make already, the cheapest first: the
// schedule 1F1B, smaller micro-batches and recompute if activations are counted, sharding, then
// offload to files, then smaller buffers; and, for lack of disk space, files given up. None changes
// a result beyond the order of sums.
std::vector<MemoryChange> memory_changes(const configs::Config& config, const MemoryFacts& facts);

struct FittingConfig {
  std::vector<std::string> changes;
  configs::Config config;
};

inline constexpr int64_t kInvalidConfig = INT64_MAX;

// Returns the first changes of the list until the shortfall is zero, without those that turn out to
// be unnecessary. If the shortfall never reaches zero, returns those that reduce it. `shortfall`
// returns the bytes that the node is missing for a configuration, 0 if it fits, kInvalidConfig if
// the model cannot be trained with it.
FittingConfig fit_memory(const configs::Config& config, const MemoryFacts& facts,
                         const std::function<int64_t(const configs::Config&)>& shortfall);

}  // namespace zeroth::engine
