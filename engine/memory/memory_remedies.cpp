#include "engine/memory/memory_remedies.h"

#include <fmt/format.h>

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

using Change = std::function<void(Config&)>;

constexpr size_t kMaxRemedies = 3;

Change set_stage(int stage) {
  return [stage](Config& config) { config.zero.stage = stage; };
}

Change offload_optimizer_to(OffloadDevice device) {
  return [device](Config& config) { config.zero.offload_optimizer.device = device; };
}

void disable_prefetch(Config& config) {
  config.zero.prefetch_bucket_elements = 0;
}

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
                 disable_prefetch);
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
  void add_change(const std::string& text, const Change& change) {
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
    const bool keeps_parameters = facts_.trains && stage < 2;
    const int next = keeps_parameters ? 2 : 3;
    add_change(
        fmt::format("zero_optimization.stage {} in place of {}: {}", next, stage,
                    keeps_parameters ? "gradients and optimizer state are sharded over the ranks"
                                     : "parameters are sharded over the ranks too"),
        set_stage(next));
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
          offload_optimizer_to(OffloadDevice::kCpu));
    } else if (facts_.is_short_at(now)) {
      add_change(
          "zero_optimization.offload_optimizer.device \"nvme\" with a nvme_path: masters and "
          "optimizer state are kept in a file",
          offload_optimizer_to(OffloadDevice::kNvme));
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

// ChangeList builds the list of changes. Each member function adds the changes of one kind.
class ChangeList {
 public:
  ChangeList(const Config& config, const MemoryFacts& facts) : config_(config), facts_(facts) {}

  std::vector<MemoryChange> all() {
    if (facts_.activations && facts_.trains) activations();
    if (facts_.world_size > 1 && facts_.shortage != Shortage::kHost) shard();
    optimizer_files();
    parameter_files();
    buffers();
    back_to_host();
    return std::move(changes_);
  }

 private:
  void add_if(bool applies, std::string text, Change apply) {
    if (applies) changes_.push_back({std::move(text), std::move(apply)});
  }

  void activations() {
    const BatchConfig& batch = config_.batch;
    const int64_t samples = batch.micro_batch_size * batch.accumulation_steps;
    add_if(batch.micro_batch_size > 1,
           fmt::format("--micro-batch 1 with --accumulation {}", samples),
           [samples](Config& config) {
             config.batch.micro_batch_size = 1;
             config.batch.accumulation_steps = samples;
           });
    add_if(config_.recompute.every_nth_block != 1, "--gradient-checkpointing", [](Config& config) {
      config.recompute.every_nth_block = 1;
      config.recompute.number_checkpoints = 0;
    });
  }

  void shard() {
    for (const int stage : {2, 3}) {
      add_if(config_.zero.stage < stage && (stage == 3 || facts_.trains),
             fmt::format("zero_optimization.stage {}", stage), set_stage(stage));
    }
  }

  void optimizer_files() {
    add_if(facts_.trains && facts_.is_short_at(config_.zero.offload_optimizer.device),
           "zero_optimization.offload_optimizer.device \"nvme\"",
           offload_optimizer_to(OffloadDevice::kNvme));
  }

  // The changes reset buffer_size, which may be too small for the parameters that move into the
  // file.
  void parameter_files() {
    const OffloadParamConfig& param = config_.zero.offload_param;
    const bool has_size = param.device == OffloadDevice::kNvme &&
                          param.buffer_size_elements != configs::kBufferSizeAsNeeded;
    const char* const size = has_size ? " without buffer_size" : "";
    add_if(facts_.is_short_at(param.device),
           fmt::format(
               "zero_optimization.offload_param {{\"device\": \"nvme\", \"max_in_cpu\": 0}}{}{}",
               size, config_.zero.stage == 3 ? "" : " with zero_optimization.stage 3"),
           move_parameters_to_files);
    add_if(param.device == OffloadDevice::kNvme && param.max_in_cpu_elements > 0,
           fmt::format("zero_optimization.offload_param {{\"max_in_cpu\": 0}}{}", size),
           [](Config& config) {
             config.zero.offload_param.max_in_cpu_elements = 0;
             config.zero.offload_param.buffer_size_elements = configs::kBufferSizeAsNeeded;
           });
  }

  void buffers() {
    constexpr int64_t kSmallTile = int64_t{1} << 20;
    add_if(facts_.trains && config_.zero.sub_group_size_elements > kSmallTile,
           fmt::format("zero_optimization.sub_group_size {}", kSmallTile),
           [](Config& config) { config.zero.sub_group_size_elements = kSmallTile; });
    add_if(config_.zero.offload_param.buffer_count > 2,
           "zero_optimization.offload_param.buffer_count 2",
           [](Config& config) { config.zero.offload_param.buffer_count = 2; });
    add_if(config_.zero.prefetch_bucket_elements > 0,
           "zero_optimization.stage3_prefetch_bucket_size 0", disable_prefetch);
  }

  // Adds changes for a lack of disk space while CPU memory suffices.
  void back_to_host() {
    add_if(config_.zero.offload_optimizer.device == OffloadDevice::kNvme,
           "zero_optimization.offload_optimizer.device \"cpu\"",
           offload_optimizer_to(OffloadDevice::kCpu));
    add_if(config_.zero.offload_param.device == OffloadDevice::kNvme,
           "zero_optimization.offload_param.device \"cpu\"",
           [](Config& config) { config.zero.offload_param.device = OffloadDevice::kCpu; });
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
