// Configuration changes that reduce a run's memory, and the fewest of them with which it fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "engine/memory/memory_remedies.h"

namespace zeroth::engine {

struct MemoryChange {
  std::string text;  // for the user: the setting to change
  std::function<void(configs::Config&)> apply;
};

// Returns the changes that this configuration does not make already, the cheapest first: smaller
// micro-batches and recompute if activations are counted, sharding, then offload to files, then
// smaller buffers; and, for lack of disk space, files given up. None changes a result beyond the
// order of sums.
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
