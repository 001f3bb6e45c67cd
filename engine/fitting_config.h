// Changes to a configuration after which a run takes less memory, and the fewest of them with which
// it fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "engine/memory_remedies.h"

namespace zeroth::engine {

struct MemoryChange {
  std::string text;  // what to write into ds_config.json
  std::function<void(configs::Config&)> apply;
};

// Only what this configuration does not do already, what costs least first: less of a batch at once
// and recompute where activations are counted, sharding, then resting in files, then smaller
// buffers; and, for want of disk, files given up. None changes a result beyond the order of sums.
std::vector<MemoryChange> memory_changes(const configs::Config& config, const MemoryFacts& facts);

struct FittingConfig {
  std::vector<std::string> changes;
  configs::Config config;
};

inline constexpr int64_t kInvalidConfig = INT64_MAX;

// The first changes of the list until nothing is lacking, without those that turn out to be
// needless. Where something always is: those that help. `lacks`: bytes that the machine lacks for a
// configuration, 0 when it fits, kInvalidConfig where the model cannot be trained with it.
FittingConfig fit_memory(const configs::Config& config, const MemoryFacts& facts,
                         const std::function<int64_t(const configs::Config&)>& shortfall);

}  // namespace zeroth::engine
