#include "engine/memory/fitting_config.h"

#include <fmt/format.h>

#include <algorithm>

namespace zeroth::engine {
namespace {

using configs::BatchConfig;
using configs::Config;
using configs::OffloadDevice;
using configs::OffloadParamConfig;
using Shortage = MemoryFacts::Shortage;

bool is_explicit(const OffloadParamConfig& param) {
  return param.device == OffloadDevice::kNvme &&
         param.buffer_size_elements != configs::kBufferSizeAsNeeded;
}

// ChangeList builds the list of changes. Each member function adds the changes of one kind.
class ChangeList {
 public:
  ChangeList(const Config& config, const MemoryFacts& facts) : config_(config), facts_(facts) {}

  std::vector<MemoryChange> all() {
    if (facts_.activations && facts_.trains) activations();
    shard();
    files();
    buffers();
    back_to_host();
    return std::move(changes_);
  }

 private:
  void add(std::string text, std::function<void(Config&)> apply) {
    changes_.push_back({std::move(text), std::move(apply)});
  }

  void activations() {
    const BatchConfig& batch = config_.batch;
    if (batch.micro_batch_size > 1) {
      const int64_t samples = batch.micro_batch_size * batch.accumulation_steps;
      add(fmt::format("--micro-batch 1 with --accumulation {}", samples),
          [samples](Config& config) {
            config.batch.micro_batch_size = 1;
            config.batch.accumulation_steps = samples;
          });
    }
    if (config_.recompute.every_nth_block == 1) return;
    add("--gradient-checkpointing", [](Config& config) {
      config.recompute.every_nth_block = 1;
      config.recompute.number_checkpoints = 0;
    });
  }

  void shard() {
    if (facts_.world_size == 1 || facts_.shortage == Shortage::kHost) return;
    for (const int stage : {2, 3}) {
      if (config_.zero.stage >= stage || (stage == 2 && !facts_.trains)) continue;
      add(fmt::format("zero_optimization.stage {}", stage),
          [stage](Config& config) { config.zero.stage = stage; });
    }
  }

  void files() {
    const OffloadDevice optimizer = config_.zero.offload_optimizer.device;
    if (facts_.trains && facts_.is_short_at(optimizer)) {
      add("zero_optimization.offload_optimizer.device \"nvme\"",
          [](Config& config) { config.zero.offload_optimizer.device = OffloadDevice::kNvme; });
    }
    parameter_files();
  }

  // The changes reset buffer_size, which may be too small for the parameters that move into the
  // file.
  void parameter_files() {
    const OffloadParamConfig& param = config_.zero.offload_param;
    const char* const size = is_explicit(param) ? " without buffer_size" : "";
    if (facts_.is_short_at(param.device)) {
      add(fmt::format(
              "zero_optimization.offload_param {{\"device\": \"nvme\", \"max_in_cpu\": 0}}{}{}",
              size, config_.zero.stage == 3 ? "" : " with zero_optimization.stage 3"),
          move_parameters_to_files);
    } else if (param.device == OffloadDevice::kNvme && param.max_in_cpu_elements > 0) {
      add(fmt::format("zero_optimization.offload_param {{\"max_in_cpu\": 0}}{}", size),
          [](Config& config) {
            config.zero.offload_param.max_in_cpu_elements = 0;
            config.zero.offload_param.buffer_size_elements = configs::kBufferSizeAsNeeded;
          });
    }
  }

  void buffers() {
    constexpr int64_t kSmallTile = int64_t{1} << 20;
    if (facts_.trains && config_.zero.sub_group_size_elements > kSmallTile) {
      add(fmt::format("zero_optimization.sub_group_size {}", kSmallTile),
          [](Config& config) { config.zero.sub_group_size_elements = kSmallTile; });
    }
    if (config_.zero.offload_param.buffer_count > 2) {
      add("zero_optimization.offload_param.buffer_count 2",
          [](Config& config) { config.zero.offload_param.buffer_count = 2; });
    }
    if (config_.zero.prefetch_bucket_elements > 0) {
      add("zero_optimization.stage3_prefetch_bucket_size 0",
          [](Config& config) { config.zero.prefetch_bucket_elements = 0; });
    }
  }

  // Adds changes for a lack of disk space while CPU memory suffices.
  void back_to_host() {
    if (config_.zero.offload_optimizer.device == OffloadDevice::kNvme) {
      add("zero_optimization.offload_optimizer.device \"cpu\"",
          [](Config& config) { config.zero.offload_optimizer.device = OffloadDevice::kCpu; });
    }
    if (config_.zero.offload_param.device == OffloadDevice::kNvme) {
      add("zero_optimization.offload_param.device \"cpu\"",
          [](Config& config) { config.zero.offload_param.device = OffloadDevice::kCpu; });
    }
  }

  const Config& config_;
  const MemoryFacts& facts_;
  std::vector<MemoryChange> changes_;
};

Config with_changes(Config config, const std::vector<MemoryChange>& changes) {
  for (const MemoryChange& change : changes) change.apply(config);
  return config;
}

}  // namespace

std::vector<MemoryChange> memory_changes(const Config& config, const MemoryFacts& facts) {
  return ChangeList(config, facts).all();
}

FittingConfig fit_memory(const Config& config, const MemoryFacts& facts,
                         const std::function<int64_t(const Config&)>& shortfall) {
  std::vector<MemoryChange> chosen;
  int64_t remaining = shortfall(config);
  for (const MemoryChange& change : memory_changes(config, facts)) {
    if (remaining == 0) break;
    chosen.push_back(change);
    const int64_t now = shortfall(with_changes(config, chosen));
    if (now == kInvalidConfig) {
      chosen.pop_back();
    } else {
      remaining = now;
    }
  }
  for (size_t i = chosen.size(); i-- > 0;) {
    std::vector<MemoryChange> fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const int64_t without = shortfall(with_changes(config, fewer));
    if (without > remaining) continue;
    chosen.swap(fewer);
    remaining = without;
  }
  FittingConfig result{{}, with_changes(config, chosen)};
  for (const MemoryChange& change : chosen) result.changes.push_back(change.text);
  return result;
}

}  // namespace zeroth::engine
