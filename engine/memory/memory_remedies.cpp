#include "engine/memory/memory_remedies.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "configs/resolve.h"
#include "configs/schema/keys.h"

namespace zeroth::engine {
namespace {

using configs::Config;
using configs::value_of;
using Json = nlohmann::ordered_json;
using Shortage = MemoryFacts::Shortage;

constexpr size_t kMaxRemedies = 3;
constexpr char kMicroBatch[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";
constexpr char kCheckpoints[] = "activation_checkpointing.number_checkpoints";
constexpr char kCpuCheckpointing[] = "activation_checkpointing.cpu_checkpointing";
constexpr char kSchedule[] = "pipeline.schedule";
constexpr char kStage[] = "zero_optimization.stage";
constexpr char kSubGroup[] = "zero_optimization.sub_group_size";
constexpr char kPrefetch[] = "zero_optimization.stage3_prefetch_bucket_size";
constexpr char kOptimizerDevice[] = "zero_optimization.offload_optimizer.device";
constexpr char kRatio[] = "zero_optimization.offload_optimizer.ratio";
constexpr char kParamDevice[] = "zero_optimization.offload_param.device";
constexpr char kBufferCount[] = "zero_optimization.offload_param.buffer_count";
constexpr char kBufferSize[] = "zero_optimization.offload_param.buffer_size";
constexpr char kMaxInCpu[] = "zero_optimization.offload_param.max_in_cpu";

// A Setting is a key and its value.
using Setting = std::pair<const char*, Json>;
using Settings = std::vector<Setting>;

std::string describe(const Setting& setting) {
  return fmt::format("{} {}", setting.first, setting.second.dump());
}

void apply(const Settings& settings, Config& config) {
  for (const auto& [key, value] : settings) set_value(config, key, value);
}

MemoryChange change_of(std::string text, Settings settings) {
  return {std::move(text),
          [settings = std::move(settings)](Config& config) { apply(settings, config); }};
}

int64_t number(const Config& config, const char* key) {
  return value_of(config, key).get<int64_t>();
}

// Returns the settings that keep all parameters in files. A given buffer size may be too small for
// the parameters that move into the file.
Settings all_in_file() {
  return {{kMaxInCpu, 0}, {kBufferSize, configs::kBufferSizeAsNeeded}};
}

// Returns whether data on this offload device is in the memory that is short.
bool is_short_at(const Json& device, Shortage shortage) {
  return device == "cpu" || (device == "none" && shortage == Shortage::kShared);
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
    if (value_of(config_, "data_types.param_dtype") == "fp32") {
      add("--bf16: activations and working weights in half the bytes");
    }
    offload_optimizer();
    keep_inputs_on_host();
    offload_parameters();
    if (facts_.seq_len > 1) {
      add("--seq-len {} in place of {}: shorter samples", facts_.seq_len / 2, facts_.seq_len);
    }
    add("more ranks with zero_optimization.stage 3: each holds a smaller shard");
    if (stage_ == 3) add_setting({kPrefetch, 0}, ": fewer blocks gathered ahead");
    return finish();
  }

  // Returns suggestions for CPU memory that holds offloaded data only.
  std::vector<std::string> for_host() {
    const bool states = facts_.trains && value_of(config_, kOptimizerDevice) == "cpu";
    if (states && stage_ == 0) sharding();
    if (facts_.trains && value_of(config_, kCpuCheckpointing) == true) {
      micro_batch();
      add_setting({kCpuCheckpointing, false}, ": kept inputs stay on the GPU");
    }
    offload_optimizer();
    offload_parameters();
    const auto ratio = value_of(config_, kRatio).get<double>();
    if (states && ratio > 0) add("{} below {}: a part stays on the GPU", kRatio, ratio);
    return finish();
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    remedies_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Adds a suggestion that ends with the JSON of its settings.
  void add_settings(const std::string& text, const Settings& settings) {
    Config after = config_;
    apply(settings, after);
    remedies_.push_back(text + json_to_paste(config_, std::move(after)));
  }
  void add_setting(const Setting& setting, const std::string& why) {
    add_settings(describe(setting) + why, {setting});
  }

  std::vector<std::string> finish() {
    add("a smaller model");
    if (remedies_.size() > kMaxRemedies) remedies_.resize(kMaxRemedies);
    return std::move(remedies_);
  }

  void micro_batch() {
    if (facts_.trains && config_.keeps_all_micro_batches()) {
      return add_setting(
          {kSchedule, "1f1b"},
          " in place of \"breadth-first\": activations of one micro-batch at a time");
    }
    const int64_t size = number(config_, kMicroBatch), steps = number(config_, kAccumulation);
    if (size <= 1) return;
    if (!facts_.trains) return add("--eval-micro-batch {} in place of {}", size / 2, size);
    const int64_t factor = smallest_factor(size);
    add("--micro-batch {} with --accumulation {} in place of {} and {}: the same global batch",
        size / factor, steps * factor, size, steps);
  }

  void recompute() {
    const bool of_all = config_.recompute.every_nth_block == 1 || number(config_, kCheckpoints) > 0;
    if (!facts_.trains || of_all) return;
    add("--gradient-checkpointing: blocks keep only their input and are recomputed");
  }

  void sharding() {
    if (facts_.world_size == 1 || stage_ == 3) return;
    const bool keeps_parameters = facts_.trains && stage_ < 2;
    add_setting(
        {kStage, keeps_parameters ? 2 : 3},
        fmt::format(" in place of {}: {}", stage_,
                    keeps_parameters ? "gradients and optimizer state are sharded over the ranks"
                                     : "parameters are sharded over the ranks too"));
  }

  // Moves `what` one offload device further: to the CPU if that is another memory, then to a file.
  // `with_file`: other settings for the file.
  void offload(Settings settings, const char* device, const Settings& with_file,
               std::string_view what) {
    const Json now = value_of(config_, device);
    const bool to_cpu = facts_.shortage == Shortage::kDevice;
    if (to_cpu ? now != "none" : !is_short_at(now, facts_.shortage)) return;
    settings.emplace_back(device, to_cpu ? "cpu" : "nvme");
    std::vector<std::string> texts;
    for (const Setting& setting : settings) texts.push_back(describe(setting));
    if (!to_cpu) settings.insert(settings.end(), with_file.begin(), with_file.end());
    add_settings(
        fmt::format("{}{}: {} are kept in {}", fmt::join(texts, " and "),
                    to_cpu ? "" : " with a nvme_path", what, to_cpu ? "host memory" : "a file"),
        settings);
  }

  void offload_optimizer() {
    if (facts_.trains) offload({}, kOptimizerDevice, {}, "masters and optimizer state");
  }

  void offload_parameters() {
    const Settings stage = stage_ == 3 ? Settings() : Settings{{kStage, 3}};
    offload(stage, kParamDevice, all_in_file(), "parameters");
    const int64_t in_cpu = number(config_, kMaxInCpu);
    const bool in_file = value_of(config_, kParamDevice) == "nvme";
    if (facts_.shortage != Shortage::kDevice && in_file && in_cpu > 0) {
      add("{} below {}: more parameters are kept in the file", kMaxInCpu, in_cpu);
    }
  }

  void keep_inputs_on_host() {
    if (facts_.trains && facts_.shortage == Shortage::kDevice && config_.recompute.is_on() &&
        value_of(config_, kCpuCheckpointing) == false) {
      add_settings(fmt::format("{}: kept inputs are moved to host memory", kCpuCheckpointing),
                   {{kCpuCheckpointing, true}});
    }
  }

  const Config& config_;
  const MemoryFacts& facts_;
  const int64_t stage_ = number(config_, kStage);
  std::vector<std::string> remedies_;
};

Config with_changes(Config config, const std::vector<MemoryChange>& changes) {
  for (const MemoryChange& change : changes) change.apply(config);
  return config;
}

}  // namespace

std::string json_to_paste(const Config& before, Config after) {
  const std::string sections[] = {"zero_optimization.offload_optimizer",
                                  "zero_optimization.offload_param"};
  for (const size_t i : {0, 1}) {
    const std::string path = sections[i] + ".nvme_path";
    if (value_of(after, sections[i] + ".device") != "nvme" || !value_of(after, path).is_null())
      continue;
    const Json other = value_of(after, sections[1 - i] + ".nvme_path");
    set_value(after, path, other.is_null() ? "/local_nvme" : other);
  }
  const std::string keys = configs::changed_keys(before, after);
  return keys.empty() ? "" : fmt::format("\n    in ds_config.json: {}", keys);
}

std::vector<std::string> memory_remedies(const Config& config, const MemoryFacts& facts) {
  Remedies remedies(config, facts);
  return facts.shortage == Shortage::kHost ? remedies.for_host() : remedies.for_device();
}

std::vector<MemoryChange> smaller_micro_batches(const Config& config) {
  if (config.keeps_all_micro_batches()) return {};
  const int64_t size = number(config, kMicroBatch), samples = size * number(config, kAccumulation);
  std::vector<MemoryChange> changes;
  for (int64_t smaller = size - 1; smaller > 0; --smaller) {
    if (samples % smaller != 0) continue;
    const int64_t steps = samples / smaller;
    changes.push_back(
        change_of(fmt::format("--micro-batch {} with --accumulation {}", smaller, steps),
                  {{kMicroBatch, smaller}, {kAccumulation, steps}}));
  }
  return changes;
}

std::vector<MemoryChange> memory_changes(const Config& config, const MemoryFacts& facts) {
  constexpr std::string_view kParam = "zero_optimization.offload_param";
  constexpr int64_t kSmallTile = int64_t{1} << 20;
  const int64_t stage = number(config, kStage);
  const Json optimizer = value_of(config, kOptimizerDevice);
  const Json param = value_of(config, kParamDevice);
  std::vector<MemoryChange> changes;
  const auto add_if = [&](bool applies, const Setting& setting) {
    if (applies) changes.push_back(change_of(describe(setting), {setting}));
  };
  if (facts.activations && facts.trains) {
    add_if(config.keeps_all_micro_batches(), {kSchedule, "1f1b"});
    const auto smaller = smaller_micro_batches(config);
    if (!smaller.empty()) changes.push_back(smaller.back());
    if (config.recompute.every_nth_block != 1) {
      changes.push_back({"--gradient-checkpointing", [](Config& changed) {
                           changed.recompute.every_nth_block = 1;
                           set_value(changed, kCheckpoints, 0);
                         }});
    }
  }
  if (facts.world_size > 1 && facts.shortage != Shortage::kHost) {
    add_if(facts.trains && stage < 2, {kStage, 2});
    add_if(stage < 3, {kStage, 3});
  }
  add_if(facts.trains && is_short_at(optimizer, facts.shortage), {kOptimizerDevice, "nvme"});
  Settings in_file = all_in_file();
  if (is_short_at(param, facts.shortage)) {
    in_file.insert(in_file.begin(), {{kStage, 3}, {kParamDevice, "nvme"}});
    changes.push_back(
        change_of(fmt::format("{} {{\"device\": \"nvme\", \"max_in_cpu\": 0}}{}", kParam,
                              stage == 3 ? "" : " with zero_optimization.stage 3"),
                  in_file));
  } else if (param == "nvme" && number(config, kMaxInCpu) > 0) {
    const bool as_needed = value_of(config, kBufferSize).is_null();
    changes.push_back(change_of(
        fmt::format("{} {{\"max_in_cpu\": 0}}{}", kParam, as_needed ? "" : " without buffer_size"),
        in_file));
  }
  add_if(facts.trains && number(config, kSubGroup) > kSmallTile, {kSubGroup, kSmallTile});
  add_if(number(config, kBufferCount) > 2, {kBufferCount, 2});
  add_if(number(config, kPrefetch) > 0, {kPrefetch, 0});
  // For a lack of disk space while CPU memory suffices.
  add_if(optimizer == "nvme", {kOptimizerDevice, "cpu"});
  add_if(param == "nvme", {kParamDevice, "cpu"});
  return changes;
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
