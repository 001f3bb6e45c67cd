#include "engine/memory/memory_remedies.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "configs/resolve.h"

namespace zeroth::engine {
namespace {

using configs::BatchConfig;
using configs::Config;
using configs::OffloadDevice;
using configs::OffloadOptimizerConfig;
using configs::OffloadParamConfig;
using configs::Precision;
using configs::RecomputeConfig;
using Shortage = MemoryFacts::Shortage;

constexpr size_t kMaxRemedies = 3;

int64_t smallest_factor(int64_t value) {
  for (int64_t factor = 2; factor <= value / factor; ++factor) {
    if (value % factor == 0) return factor;
  }
  return value;
}

// Remedies builds the list of suggestions. Each member function adds what helps; the calls are in
// order of cost.
class Remedies {
 public:
  Remedies(const Config& config, const MemoryFacts& facts) : config_(config), facts_(facts) {}

  // Returns suggestions for the memory of the computing device.
  std::vector<std::string> for_device() {
    micro_batch();
    recompute();
    sharding();
    if (config_.precision == Precision::kFp32) {
      add("--bf16: activations and working weights in half the bytes");
    }
    offload_optimizer();
    keep_inputs_on_host();
    offload_parameters();
    shorter_samples();
    add("more ranks with zero_optimization.stage 3: each holds a smaller shard");
    if (config_.zero.stage == 3) {
      add_change("zero_optimization.stage3_prefetch_bucket_size 0: fewer blocks gathered ahead",
                 [](Config& config) { config.zero.prefetch_bucket_elements = 0; });
    }
    return finish();
  }

  // Returns suggestions for CPU memory that holds offloaded data only.
  std::vector<std::string> for_host() {
    const OffloadOptimizerConfig& optimizer = config_.zero.offload_optimizer;
    const bool states = facts_.trains && optimizer.device == OffloadDevice::kCpu;
    if (states && config_.zero.stage == 0) sharding();
    if (facts_.trains && config_.recompute.cpu_checkpointing) {
      micro_batch();
      add_change("activation_checkpointing.cpu_checkpointing false: kept inputs stay on the GPU",
                 [](Config& config) { config.recompute.cpu_checkpointing = false; });
    }
    offload_optimizer();
    offload_parameters();
    if (states && optimizer.ratio > 0) {
      add("zero_optimization.offload_optimizer.ratio below {}: a part stays on the GPU",
          optimizer.ratio);
    }
    return finish();
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    remedies_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Adds a suggestion that ends with the JSON of `change`.
  void add_change(const std::string& text, const std::function<void(Config&)>& change) {
    Config after = config_;
    change(after);
    remedies_.push_back(text + json_to_paste(config_, std::move(after)));
  }

  std::vector<std::string> finish() {
    add("a smaller model");
    if (remedies_.size() > kMaxRemedies) remedies_.resize(kMaxRemedies);
    return std::move(remedies_);
  }

  void micro_batch() {
    const BatchConfig& batch = config_.batch;
    if (batch.micro_batch_size <= 1) return;
    if (!facts_.trains) {
      return add("--eval-micro-batch {} in place of {}", batch.micro_batch_size / 2,
                 batch.micro_batch_size);
    }
    const int64_t factor = smallest_factor(batch.micro_batch_size);
    add("--micro-batch {} with --accumulation {} in place of {} and {}: the same global batch",
        batch.micro_batch_size / factor, batch.accumulation_steps * factor, batch.micro_batch_size,
        batch.accumulation_steps);
  }

  void recompute() {
    const RecomputeConfig& recompute = config_.recompute;
    if (!facts_.trains || recompute.every_nth_block == 1 || recompute.number_checkpoints > 0) {
      return;
    }
    add("--gradient-checkpointing: blocks keep only their input and are recomputed");
  }

  void sharding() {
    const int stage = config_.zero.stage;
    if (facts_.world_size == 1 || stage == 3) return;
    if (facts_.trains && stage < 2) {
      add_change(
          fmt::format("zero_optimization.stage 2 in place of {}: gradients and optimizer state are "
                      "sharded over the ranks",
                      stage),
          [](Config& config) { config.zero.stage = 2; });
    } else {
      add_change(
          fmt::format("zero_optimization.stage 3 in place of {}: parameters are sharded over the "
                      "ranks too",
                      stage),
          [](Config& config) { config.zero.stage = 3; });
    }
  }

  // Moves the optimizer one offload device further: cpu if that is another memory, then nvme.
  void offload_optimizer() {
    if (!facts_.trains) return;
    const OffloadDevice now = config_.zero.offload_optimizer.device;
    if (facts_.shortage == Shortage::kDevice) {
      if (now != OffloadDevice::kNone) return;
      add_change(
          "zero_optimization.offload_optimizer.device \"cpu\": masters and optimizer state are "
          "kept in host memory",
          [](Config& config) { config.zero.offload_optimizer.device = OffloadDevice::kCpu; });
    } else if (facts_.is_short_at(now)) {
      add_change(
          "zero_optimization.offload_optimizer.device \"nvme\" with a nvme_path: masters and "
          "optimizer state are kept in a file",
          [](Config& config) { config.zero.offload_optimizer.device = OffloadDevice::kNvme; });
    }
  }

  void offload_parameters() {
    const OffloadParamConfig& param = config_.zero.offload_param;
    const char* stage = config_.zero.stage == 3 ? "" : "zero_optimization.stage 3 and ";
    if (facts_.shortage == Shortage::kDevice) {
      if (param.device != OffloadDevice::kNone) return;
      add_change(
          fmt::format(
              "{}zero_optimization.offload_param.device \"cpu\": parameters are kept in host "
              "memory",
              stage),
          [](Config& config) {
            config.zero.stage = 3;
            config.zero.offload_param.device = OffloadDevice::kCpu;
          });
    } else if (facts_.is_short_at(param.device)) {
      add_change(fmt::format("{}zero_optimization.offload_param.device \"nvme\" with a nvme_path: "
                             "parameters are kept in a file",
                             stage),
                 move_parameters_to_files);
    } else if (param.device == OffloadDevice::kNvme && param.max_in_cpu_elements > 0) {
      add("zero_optimization.offload_param.max_in_cpu below {}: more parameters are kept in the "
          "file",
          param.max_in_cpu_elements);
    }
  }

  void keep_inputs_on_host() {
    const RecomputeConfig& recompute = config_.recompute;
    const bool recomputes = recompute.every_nth_block > 0 || recompute.number_checkpoints > 0;
    if (facts_.trains && facts_.shortage == Shortage::kDevice && recomputes &&
        !recompute.cpu_checkpointing) {
      add_change("activation_checkpointing.cpu_checkpointing: kept inputs are moved to host memory",
                 [](Config& config) { config.recompute.cpu_checkpointing = true; });
    }
  }

  void shorter_samples() {
    if (facts_.seq_len <= 1) return;
    add("--seq-len {} in place of {}: shorter samples", facts_.seq_len / 2, facts_.seq_len);
  }

  const Config& config_;
  const MemoryFacts& facts_;
  std::vector<std::string> remedies_;
};

}  // namespace

void move_parameters_to_files(Config& config) {
  config.zero.stage = 3;
  OffloadParamConfig& files = config.zero.offload_param;
  files.device = OffloadDevice::kNvme;
  files.max_in_cpu_elements = 0;
  files.buffer_size_elements = configs::kBufferSizeAsNeeded;
}

std::string json_to_paste(const Config& before, Config after) {
  constexpr const char* kExample = "/local_nvme";
  std::string& optimizer_path = after.zero.offload_optimizer.nvme_path;
  std::string& param_path = after.zero.offload_param.nvme_path;
  const auto fill = [](OffloadDevice device, std::string& directory, const std::string& other) {
    if (device != OffloadDevice::kNvme || !directory.empty()) return;
    directory = other.empty() ? kExample : other;
  };
  fill(after.zero.offload_optimizer.device, optimizer_path, param_path);
  fill(after.zero.offload_param.device, param_path, optimizer_path);
  const std::string keys = configs::changed_keys(before, after);
  return keys.empty() ? "" : fmt::format("\n    in ds_config.json: {}", keys);
}

std::vector<std::string> memory_remedies(const Config& config, const MemoryFacts& facts) {
  Remedies remedies(config, facts);
  return facts.shortage == Shortage::kHost ? remedies.for_host() : remedies.for_device();
}

}  // namespace zeroth::engine
